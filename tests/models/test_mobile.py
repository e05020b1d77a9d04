"""Networks of inverted residuals: parameter counts, and an independent PyTorch network."""

import functools
import math

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import config, models
from jaxatr.models import pretrained
from jaxatr.models.tensor_names import names_of

STAGES = ((3, 1, 1, 1, 8), (3, 2, 2, 6, 16), (5, 2, 2, 3, 24))
EVEN = functools.partial(models.MobileNet, stages=STAGES)
SAME = functools.partial(models.MobileNet, stages=STAGES, padding="same", epsilon=1e-3)


@pytest.mark.parametrize(
    ("name", "count"),
    # As published, 3.50, 4.65 and 6.09 million, less the classifier, 1280 * 1000 + 1000.
    [
        ("mobilenet_v2", 3_504_872 - 1_281_000),
        ("efficientnet_lite0", 4_652_008 - 1_281_000),
        ("efficientnet_lite2", 6_092_072 - 1_281_000),
    ],
)
def test_parameter_counts_are_the_published_ones(name, count):
    model = models.backbones.BACKBONES[name].build()
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 64, 64, 3)))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes["params"])) == count
    features = jax.eval_shape(model.apply, shapes, jnp.zeros((2, 65, 96, 3)))
    assert features.shape == (2, 1280)


def pytorch_network(same):
    """The network in PyTorch, with published names and random weights."""
    torch = pytest.importorskip("torch", reason="extra 'peers' is not installed")
    nn, functional = torch.nn, torch.nn.functional
    epsilon = 1e-3 if same else 1e-5

    def norm(features):
        made = nn.BatchNorm2d(features, eps=epsilon)
        nn.init.uniform_(made.weight, 0.8, 1.4)
        nn.init.normal_(made.bias, 0.2, 0.2)
        nn.init.normal_(made.running_mean, 0, 0.2)
        nn.init.uniform_(made.running_var, 0.3, 1.2)
        return made

    class Conv(nn.Conv2d):
        def forward(self, x):
            if not same:
                return super().forward(x)
            pads = []
            for size in (x.shape[3], x.shape[2]):  # of the last axis first
                k, step = self.kernel_size[0], self.stride[0]
                total = max((math.ceil(size / step) - 1) * step + k - size, 0)
                pads += [total // 2, total - total // 2]
            return functional.conv2d(
                functional.pad(x, pads), self.weight, None, self.stride, 0, 1, self.groups
            )

    def conv(before, after, size=1, stride=1, groups=1):
        pad = 0 if same else size // 2
        return Conv(before, after, size, stride, pad, groups=groups, bias=False)

    class Lite(nn.Module):
        def __init__(self, before, after, size, stride, expansion):
            super().__init__()
            inner = before * expansion
            if expansion != 1:
                self._expand_conv, self._bn0 = conv(before, inner), norm(inner)
            self._depthwise_conv = conv(inner, inner, size, stride, inner)
            self._bn1, self._bn2 = norm(inner), norm(after)
            self._project_conv = conv(inner, after)
            self.expands, self.adds = expansion != 1, stride == 1 and before == after

        def forward(self, x):
            y = functional.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
            y = functional.relu6(self._bn1(self._depthwise_conv(y)))
            y = self._bn2(self._project_conv(y))
            return x + y if self.adds else y

    class Mobile(nn.Module):
        def __init__(self, before, after, size, stride, expansion):
            super().__init__()
            inner = before * expansion
            parts = [
                nn.Sequential(conv(inner, inner, size, stride, inner), norm(inner), nn.ReLU6()),
                conv(inner, after),
                norm(after),
            ]
            if expansion != 1:
                parts.insert(0, nn.Sequential(conv(before, inner), norm(inner), nn.ReLU6()))
            self.conv = nn.Sequential(*parts)
            self.adds = stride == 1 and before == after

        def forward(self, x):
            return x + self.conv(x) if self.adds else self.conv(x)

    blocks, before = [], 32
    for size, count, first, expansion, after in STAGES:
        for index in range(count):
            kind = Lite if same else Mobile
            blocks.append(kind(before, after, size, first if index == 0 else 1, expansion))
            before = after

    class LiteNet(nn.Module):
        def __init__(self):
            super().__init__()
            self._conv_stem, self._bn0 = conv(3, 32, 3, 2), norm(32)
            self._blocks = nn.ModuleList(blocks)
            self._conv_head, self._bn1 = conv(before, 1280), norm(1280)
            self._fc = nn.Linear(1280, 5)

        def forward(self, x):
            x = functional.relu6(self._bn0(self._conv_stem(x)))
            for block in self._blocks:
                x = block(x)
            return functional.relu6(self._bn1(self._conv_head(x))).mean((2, 3))

    class MobileNet(nn.Module):
        def __init__(self):
            super().__init__()
            stem = nn.Sequential(conv(3, 32, 3, 2), norm(32), nn.ReLU6())
            head = nn.Sequential(conv(before, 1280), norm(1280), nn.ReLU6())
            self.features = nn.Sequential(stem, *blocks, head)
            self.classifier = nn.Sequential(nn.Dropout(), nn.Linear(1280, 5))

        def forward(self, x):
            return self.features(x).mean((2, 3))

    torch.manual_seed(0)
    net = (LiteNet if same else MobileNet)().eval()
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            module.weight.data *= module.groups**0.5
    return net


@pytest.mark.parametrize("same", [pytest.param(False, marks=pytest.mark.slow), True])
def test_features_are_pytorchs(same, tmp_path):
    net = pytorch_network(same)
    import torch

    torch.save(net.state_dict(), tmp_path / "net.pth")
    model = (SAME if same else EVEN)()
    variables = pretrained.load(tmp_path / "net.pth", model)
    draw = np.random.default_rng(1)
    for shape in [(2, 32, 40, 3), (2, 33, 39, 3)]:  # paddings differ where sizes are even
        images = draw.normal(0, 2, shape).astype(np.float32)
        with torch.no_grad():
            expected = net(torch.tensor(images).permute(0, 3, 1, 2)).numpy()
        assert expected.std(axis=0).max() > 0.05 * expected.max()  # the image counts
        found = jax.jit(model.apply)(variables, images)
        np.testing.assert_allclose(found, expected, atol=2e-5 * expected.max())
    again = pretrained.to_torch(variables, model)
    state = {name: tensor.numpy() for name, tensor in net.state_dict().items()}
    ignored = names_of(model, "").ignored
    assert set(again) == {name for name in state if not ignored.fullmatch(name)}
    for name, array in again.items():
        np.testing.assert_array_equal(array, state[name], err_msg=name)


GRAY = jnp.asarray(np.random.default_rng(0).normal(1, 2, (2, 32, 32, 1)), jnp.float32)


@functools.cache
def begun():
    """Its first variables, which do not depend on what is frozen."""
    backbone = EVEN(axis_name=None)
    return jax.jit(models.OpenSetClassifier(backbone, 3).init)(jax.random.key(0), GRAY)


@pytest.mark.slow
def test_the_two_paddings_differ_where_the_stride_halves_an_even_side():
    variables = {name: tree["backbone"] for name, tree in begun().items()}
    found = [jax.jit(model.apply)(variables, GRAY) for model in (EVEN(), EVEN(padding="same"))]
    assert np.abs(found[0] - found[1]).max() > 1e-3


def network(monkeypatch, freeze, **fields):
    found = {"tiny": models.backbones.Backbone(EVEN)}
    monkeypatch.setattr(models.build, "BACKBONES", found)
    made = config.common().model
    args = {"axis_name": None}
    made.update({"freeze": freeze, "backbone": "tiny", "args": args, **fields})
    return models.build_open_set(made, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("freeze", "still"),
    [
        ("", set()),
        ("stem,stage1", {"stem", "stage1"}),
        ("stem,stage1,stage2,stage3,head", {"stem", "stage1", "stage2", "stage3", "head"}),
        ("statistics", {"stem", "stage1", "stage2", "stage3", "head"}),
    ],
)
def test_frozen_parts_keep_their_statistics(monkeypatch, freeze, still):
    module = network(monkeypatch, freeze)
    variables = begun()
    models.check_freeze(freeze, variables["params"])
    train = jax.jit(lambda v: module.apply(v, GRAY, train=True, mutable=["batch_stats"]))
    old, new = variables["batch_stats"]["backbone"], train(variables)[1]["batch_stats"]["backbone"]
    for path, leaf in flax.traverse_util.flatten_dict(old).items():
        moved = (np.asarray(leaf) != flax.traverse_util.flatten_dict(new)[path]).any()
        assert moved == (path[0].split("_")[0] not in still), path
    trains = models.trainable(freeze) or (lambda path: True)
    paths = flax.traverse_util.flatten_dict(variables["params"]["backbone"])
    frozen = {path[0].split("_")[0] for path in paths if not trains(("backbone", *path))}
    assert frozen == (set() if freeze in ("", "statistics") else still)


def test_maps_and_bfloat16(monkeypatch):
    images = jnp.ones((2, 32, 32, 3))
    model = network(monkeypatch, "", dtype="bfloat16").backbone
    variables = jax.eval_shape(model.init, jax.random.key(0), images)
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
    run = functools.partial(model.apply, mutable=["intermediates"])
    features, sown = jax.eval_shape(run, variables, images)
    maps = {name: value[0] for name, value in sown["intermediates"].items() if name in model.maps}
    assert list(model.maps) == ["map_stem", "map_stage1", "map_stage2", "map_stage3"]
    assert {name: one.shape[1:] for name, one in maps.items()} == {
        "map_stem": (16, 16, 32),
        "map_stage1": (16, 16, 8),
        "map_stage2": (8, 8, 16),
        "map_stage3": (4, 4, 24),
    }
    assert {one.dtype for one in maps.values()} == {jnp.dtype("bfloat16")}
    assert features.dtype == jnp.float32
