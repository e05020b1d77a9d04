"""Residual networks: parameter counts, an independent PyTorch network, and the stems."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import models


def init(model, size=32, channels=3):
    return jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, size, size, channels)))


@pytest.mark.parametrize(
    ("name", "millions"),
    # torchvision's counts less the classifier, 512 * 1000 + 1000 or 2048 * 1000 + 1000.
    [
        ("resnet18", 11_689_512 - 513_000),
        ("resnet34", 21_797_672 - 513_000),
        ("resnet50", 25_557_032 - 2_049_000),
        ("resnet50_v1", 25_557_032 - 2_049_000),
        ("resnet101", 44_549_160 - 2_049_000),
    ],
)
def test_parameter_counts_are_torchvisions(name, millions):
    model = models.backbones.BACKBONES[name].build()
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 64, 64, 3)))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes["params"])) == millions


@pytest.mark.parametrize(("stem", "size", "last"), [("7x7", 64, 2), ("3x3", 32, 4)])
def test_feature_map_sizes(stem, size, last):
    model = models.ResNet18(stem=stem, width=4)
    images = jnp.zeros((2, size, size, 3))
    variables = jax.eval_shape(model.init, jax.random.key(0), images)
    capture = partial(
        model.apply,
        capture_intermediates=lambda module, _: module.name == "stage4_block2",
        mutable=["intermediates"],
    )
    _, state = jax.eval_shape(capture, variables, images)
    (last_map,) = state["intermediates"]["stage4_block2"]["__call__"]
    assert last_map.shape == (2, last, last, 32)


def test_unknown_stem_is_refused(unchecked):
    with pytest.raises(ValueError, match="stem: got '5x5'"):
        init(models.ResNet18(stem="5x5"))


@pytest.mark.slow
@pytest.mark.parametrize("odd", [33, 47])
def test_any_size_and_any_number_of_channels(odd):
    model = models.ResNet18(width=4)
    features = jax.jit(model.apply)(init(model, odd, 2), jnp.ones((2, odd, odd, 2)))
    assert features.shape == (2, 32)


@pytest.mark.slow
def test_bfloat16_computes_in_bfloat16_and_keeps_float32_parameters():
    shallow = partial(models.ResNet18, width=8, stage_sizes=(1, 1, 1, 1))
    model, half = shallow(), shallow(dtype=jnp.bfloat16)
    variables = init(half)
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
    x = jax.random.normal(jax.random.key(1), (4, 32, 32, 3))
    full, low = jax.jit(model.apply)(variables, x), jax.jit(half.apply)(variables, x)
    assert low.dtype == jnp.float32
    assert 0 < np.abs(full - low).max() < 0.05 * np.abs(full).max() + 0.05


def test_agrees_with_a_pytorch_network_in_training_and_test_mode():
    torch = pytest.importorskip("torch", reason="extra 'peers' is not installed")
    model = models.ResNet18(width=8, axis_name=None)
    variables = init(model)
    x = np.random.default_rng(0).normal(size=(16, 64, 64, 3)).astype(np.float32)
    params = variables["params"]

    def conv(t, p, stride=1):
        kernel = torch.tensor(np.asarray(p["kernel"])).permute(3, 2, 0, 1)
        return torch.nn.functional.conv2d(t, kernel, None, stride, (kernel.shape[-1] - 1) // 2)

    def norm(t, p):
        scale, bias = (torch.tensor(np.asarray(p[name])) for name in ("scale", "bias"))
        return torch.nn.functional.batch_norm(t, None, None, scale, bias, True, 0.1, 1e-5)

    t = torch.tensor(x).permute(0, 3, 1, 2)
    t = torch.relu(norm(conv(t, params["stem_conv"], 2), params["stem_norm"]))
    t = torch.nn.functional.max_pool2d(t, 3, 2, 1)
    for stage in range(4):
        for index in range(2):
            block = params[f"stage{stage + 1}_block{index + 1}"]
            stride = 2 if stage and not index else 1
            y = torch.relu(norm(conv(t, block["conv1"], stride), block["norm1"]))
            y = norm(conv(y, block["conv2"]), block["norm2"])
            if "shortcut_conv" in block:
                t = norm(conv(t, block["shortcut_conv"], stride), block["shortcut_norm"])
            t = torch.relu(y + t)
    expected = t.mean((2, 3)).numpy()
    apply = jax.jit(partial(model.apply, train=True, mutable=["batch_stats"]))
    features, _ = apply(variables, x)
    np.testing.assert_allclose(features, expected, atol=2e-4)


@pytest.mark.slow
def test_running_statistics_follow_the_batch():
    model = models.ResNet18(width=4, stage_sizes=(1, 1, 1, 1), axis_name=None)
    variables = init(model)
    x = jax.random.normal(jax.random.key(1), (8, 32, 32, 3)) * 3 + 1
    apply = jax.jit(partial(model.apply, train=True, mutable=["batch_stats"]))
    _, state = apply(variables, x)
    before = variables["batch_stats"]["stem_norm"]["mean"]
    after = state["batch_stats"]["stem_norm"]["mean"]
    assert np.all(np.asarray(before) == 0) and np.any(np.asarray(after) != 0)
