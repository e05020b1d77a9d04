"""Weights from safetensors files: an independent PyTorch network, and files that do not fit."""

import hashlib
import os
import pickle

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from jaxatr import models
from jaxatr.models import pretrained

NETWORKS = {
    "resnet18": ((2, 2, 2, 2), False),
    "resnet34": ((3, 4, 6, 3), False),
    "resnet50": ((3, 4, 6, 3), True),
    "resnet101": ((3, 4, 23, 3), True),
}
SHALLOW = {"basic": ((1, 2, 1, 1), False), "bottleneck": ((1, 2, 1, 1), True)}


def jax_resnet(name, width=64):
    if name in SHALLOW:
        depths, bottleneck = SHALLOW[name]
        block = models.resnet.Bottleneck if bottleneck else models.resnet.BasicBlock
        return models.ResNet(depths, block, width)
    return models.backbones.BACKBONES[name].build(width=width)


def pytorch_resnet(name, width=64, classes=10):
    """torchvision's network in PyTorch, with random weights and running statistics."""
    torch = pytest.importorskip("torch", reason="extra 'peers' is not installed")
    nn = torch.nn
    depths, bottleneck = (NETWORKS | SHALLOW)[name]

    class Block(nn.Module):
        def __init__(self, before, inner, stride):
            super().__init__()
            after = inner * (4 if bottleneck else 1)
            sizes = ((1, 1), (3, stride), (1, 1)) if bottleneck else ((3, stride), (3, 1))
            widths = (before, inner, inner, after)[: len(sizes)] + (after,)
            for i, (size, step) in enumerate(sizes):
                conv = nn.Conv2d(widths[i], widths[i + 1], size, step, size // 2, bias=False)
                setattr(self, f"conv{i + 1}", conv)
                setattr(self, f"bn{i + 1}", nn.BatchNorm2d(widths[i + 1]))
            self.count = len(sizes)
            self.downsample = None
            if stride != 1 or before != after:
                conv = nn.Conv2d(before, after, 1, stride, bias=False)
                self.downsample = nn.Sequential(conv, nn.BatchNorm2d(after))

        def forward(self, x):
            y = x
            for i in range(1, self.count + 1):
                y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
                y = torch.relu(y) if i < self.count else y
            return torch.relu(y + (x if self.downsample is None else self.downsample(x)))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            self.maxpool = nn.MaxPool2d(3, 2, 1)
            before = width
            for stage, depth in enumerate(depths):
                blocks = []
                for index in range(depth):
                    inner, stride = width * 2**stage, 2 if stage and not index else 1
                    blocks.append(Block(before, inner, stride))
                    before = inner * (4 if bottleneck else 1)
                setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
            self.fc = nn.Linear(before, classes)

        def forward(self, x):
            x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
            x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
            return x.mean((2, 3))

    torch.manual_seed(0)
    net = Net().eval()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.8, 1.4)
            nn.init.normal_(module.bias, 0, 0.2)
            nn.init.normal_(module.running_mean, 0, 0.2)
            nn.init.uniform_(module.running_var, 0.3, 1.2)
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return net


def write(net, path):
    from safetensors.torch import save_file as save_torch

    save_torch(net.state_dict(), path)
    return path


def differs(net, name, path, size, batch=3):
    """Returns the largest difference of features, relative to the largest feature."""
    import torch

    draw = np.random.default_rng(1)
    images = draw.normal(size=(batch, size, size, 3)) + draw.normal(0, 3, (batch, 1, 1, 3))
    images = images.astype(np.float32)
    model = jax_resnet(name, net.conv1.out_channels)
    features = jax.jit(model.apply)(pretrained.load(path, model), images)
    with torch.no_grad():
        expected = net(torch.tensor(images).permute(0, 3, 1, 2)).numpy()
    assert expected.std(axis=0).max() > 0.05 * np.abs(expected).max()  # the image counts
    return np.abs(features - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("name", list(SHALLOW))
def test_features_are_pytorchs(name, tmp_path):
    net = pytorch_resnet(name, width=16)
    assert differs(net, name, write(net, tmp_path / "net.safetensors"), 64) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("size", [64, 224])
@pytest.mark.parametrize("name", list(NETWORKS))
def test_features_of_the_full_networks_are_pytorchs(name, size, tmp_path):
    net = pytorch_resnet(name, classes=1000)
    assert differs(net, name, write(net, tmp_path / "net.safetensors"), size) < 1e-4


@pytest.mark.parametrize("name", list(NETWORKS))
def test_every_variable_is_read_from_its_tensor(name, tmp_path):
    net = pytorch_resnet(name, width=4)
    model = jax_resnet(name, width=4)
    loaded = pretrained.load(write(net, tmp_path / "net.safetensors"), model)
    state = {n: t.numpy() for n, t in net.state_dict().items()}
    again = pretrained.to_torch(loaded)
    ignored = {"fc.weight", "fc.bias", *(n for n in state if n.endswith("num_batches_tracked"))}
    assert set(again) == set(state) - ignored
    for tensor, array in again.items():
        np.testing.assert_array_equal(array, state[tensor], err_msg=tensor)


MODEL = models.ResNet((1, 1, 2, 1), models.resnet.BasicBlock, width=4)


@pytest.fixture(scope="module")
def tensors():
    """Returns random tensors for :data:`MODEL`, without PyTorch."""
    shapes = jax.eval_shape(MODEL.init, jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    draw = np.random.default_rng(0)
    variables = jax.tree.map(lambda s: draw.uniform(0.5, 1, s.shape).astype(np.float32), shapes)
    return pretrained.to_torch(variables)


def test_names_and_layout_by_hand(tensors, tmp_path):
    save_file(tensors, tmp_path / "w.safetensors")
    loaded = pretrained.load(tmp_path / "w.safetensors", MODEL)
    params, stats = loaded["params"], loaded["batch_stats"]
    assert set(loaded) == {"params", "batch_stats"}
    kernel = params["stage2_block1"]["shortcut_conv"]["kernel"]
    assert kernel.shape == (1, 1, 4, 8)
    np.testing.assert_array_equal(
        kernel[0, 0].T, tensors["layer2.0.downsample.0.weight"][..., 0, 0]
    )
    assert params["stem_conv"]["kernel"][6, 2, 1, 3] == tensors["conv1.weight"][3, 1, 6, 2]
    pairs = [
        (params["stem_norm"]["bias"], "bn1.bias"),
        (params["stage3_block2"]["norm2"]["scale"], "layer3.1.bn2.weight"),
        (stats["stage3_block2"]["norm2"]["mean"], "layer3.1.bn2.running_mean"),
        (stats["stage4_block1"]["shortcut_norm"]["var"], "layer4.0.downsample.1.running_var"),
    ]
    for array, name in pairs:
        np.testing.assert_array_equal(array, tensors[name])


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
def test_other_precisions_become_float32(tensors, tmp_path, dtype):
    cast = {name: array.astype(dtype) for name, array in tensors.items()}
    save_file(cast, tmp_path / "w.safetensors")
    loaded = pretrained.load(tmp_path / "w.safetensors", MODEL)
    assert {leaf.dtype for leaf in jax.tree.leaves(loaded)} == {np.dtype("float32")}
    expected = cast["bn1.weight"].astype(np.float32)
    np.testing.assert_array_equal(loaded["params"]["stem_norm"]["scale"], expected)


def test_a_prefix_of_all_names_is_left_away(tensors, tmp_path):
    named = {f"module.{name}": array for name, array in tensors.items()}
    named["module.fc.weight"] = np.ones((2, 32), np.float32)
    named["module.bn1.num_batches_tracked"] = np.array(7)
    save_file(named, tmp_path / "w.safetensors")
    loaded = pretrained.load(tmp_path / "w.safetensors", MODEL)
    np.testing.assert_array_equal(loaded["params"]["stem_norm"]["bias"], tensors["bn1.bias"])
    save_file(named | {"head.weight": np.ones(2, np.float32)}, tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match="\n  bn1.bias: missing\n(.*\n)*  module.bn1.bias: unexp"):
        pretrained.load(tmp_path / "w.safetensors", MODEL)


def test_all_that_does_not_fit_is_listed(tensors, tmp_path):
    broken = {name: array for name, array in tensors.items() if name != "layer1.0.conv2.weight"}
    broken["bn1.running_var"] = np.ones(9, np.float32)
    broken["layer4.0.bn1.bias"] = np.full(32, 1e300)
    broken["layer5.0.conv1.weight"] = broken["head.weight"] = np.ones(1, np.float32)
    path = tmp_path / "w.safetensors"
    save_file(broken, path)
    with pytest.raises(ValueError) as error:
        pretrained.load(path, MODEL)
    assert str(error.value).splitlines() == [
        f"{path} does not fit the model:",
        "  bn1.running_var: got [9], wanted [4]",
        "  head.weight: unexpected",
        "  layer1.0.conv2.weight: missing",
        "  layer4.0.bn1.bias: contains values that are not finite in float32",
        "  layer5.0.conv1.weight: unexpected",
    ]


def test_another_width_stem_or_depth_is_refused(tensors, tmp_path):
    path = tmp_path / "w.safetensors"
    save_file(tensors, path)
    with pytest.raises(ValueError) as error:
        pretrained.load(path, MODEL.clone(width=8))
    assert "  conv1.weight: got [4, 3, 7, 7], wanted [8, 3, 7, 7]" in str(error.value)
    assert len(str(error.value).splitlines()) == 1 + len(tensors)
    with pytest.raises(ValueError, match=r"wanted \[4, 3, 3, 3\]$"):
        pretrained.load(path, MODEL.clone(stem="3x3"))
    with pytest.raises(ValueError, match="layer1.2.conv1.weight: missing"):
        pretrained.load(path, models.ResNet34(width=4))


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 5])
def test_equal_channels_keep_the_output_for_all_files(tensors, tmp_path, count):
    path = tmp_path / "w.safetensors"
    save_file(tensors, path)
    with pytest.raises(ValueError, match=rf"wanted \[4, {count}, 7, 7\] \(channels='sum' adapts"):
        pretrained.load(path, MODEL, in_channels=count)
    gray = np.random.default_rng(0).normal(size=(2, 32, 32, 1)).astype(np.float32)
    apply = jax.jit(MODEL.apply)
    expected = apply(pretrained.load(path, MODEL), np.repeat(gray, 3, axis=-1))
    loaded = pretrained.load(path, MODEL, in_channels=count, channels="sum")
    found = apply(loaded, np.repeat(gray, count, axis=-1))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_sum_changes_nothing_where_the_channels_are_the_same(tensors, tmp_path):
    path = tmp_path / "w.safetensors"
    save_file(tensors, path)
    found = pretrained.load(path, MODEL, channels="sum")["params"]["stem_conv"]["kernel"]
    np.testing.assert_array_equal(found, tensors["conv1.weight"].transpose(2, 3, 1, 0))


class Trap:
    def __reduce__(self):
        return os.abort, ()


@pytest.mark.parametrize("name", ["resnet18.pth", "w.ckpt", "w", "w.safetensors"])
def test_nothing_but_tensors_is_unpickled(tmp_path, name):
    (tmp_path / name).write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError, match=rf"{name}: refers to posix.abort; wanted only ten"):
        pretrained.load(tmp_path / name, MODEL)


@pytest.mark.parametrize("archive", [True, False])
def test_a_pth_file_equals_safetensors(tensors, tmp_path, archive):
    torch = pytest.importorskip("torch", reason="extra 'peers' is not installed")
    save_file(tensors, tmp_path / "net.safetensors")
    named = {f"module.{name}": torch.tensor(array) for name, array in tensors.items()}
    path = tmp_path / "net.pth"
    torch.save({"state_dict": named}, path, _use_new_zipfile_serialization=archive)
    found, wanted = (pretrained.load(tmp_path / f, MODEL) for f in ("net.pth", "net.safetensors"))
    jax.tree.map(np.testing.assert_array_equal, found, wanted)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert pretrained.read(path, MODEL).source == {"path": str(path), "sha256": digest}


def test_a_broken_file_is_named(tensors, tmp_path):
    path = tmp_path / "w.safetensors"
    save_file(tensors, path)
    content = path.read_bytes()
    draw = np.random.default_rng(0)
    pieces = [b"", content[:5], content[:-1], content[: len(content) // 2], content + b"\0"]
    pieces += [bytes(draw.integers(0, 256, size, np.uint8)) for size in (1, 8, 100, 5000)]
    for piece in pieces:
        path.write_bytes(piece)
        with pytest.raises(ValueError, match="w.safetensors is not a valid safetensors file"):
            pretrained.load(path, MODEL)
    header = int.from_bytes(content[:8], "little")
    for place in draw.integers(0, 8 + header, 60):
        altered = bytearray(content)
        altered[place] ^= 1 << draw.integers(8)
        path.write_bytes(altered)
        with pytest.raises(ValueError, match="w.safetensors"):  # a name, a shape, the sizes …
            pretrained.load(path, MODEL)


def test_other_types_and_missing_files_are_named(tensors, tmp_path):
    path = tmp_path / "w.safetensors"
    odd = {"bn1.bias": np.zeros(4, np.int8), "layer1.0.bn1.bias": np.zeros(4, np.uint16)}
    save_file(tensors | odd, path)
    with pytest.raises(ValueError, match="bn1.bias: int8\n  layer1.0.bn1.bias: uint16$"):
        pretrained.load(path, MODEL)
    with pytest.raises(ValueError, match="there is no such file"):
        pretrained.load(tmp_path / "nowhere.safetensors", MODEL)
    with pytest.raises(ValueError, match=r"is a folder: .* jaxatr\.runs\.backbone_variables, or"):
        pretrained.load(tmp_path, MODEL)


def test_another_module_and_another_mode_are_refused(tensors, tmp_path, unchecked):
    path = tmp_path / "w.safetensors"
    save_file(tensors, path)
    with pytest.raises(ValueError, match="cannot be loaded into the backbone Generator"):
        pretrained.load(path, models.Generator(32, 1, 8))
    with pytest.raises(ValueError, match="channels: got 'mean', wanted 'same' or 'sum'"):
        pretrained.load(path, MODEL, channels="mean")


def test_the_source_is_the_files_digest(tensors, tmp_path):
    path = tmp_path / "w.safetensors"
    save_file(tensors, path)
    source = pretrained.read(path, MODEL).source
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert source == {"path": str(path), "sha256": digest}
