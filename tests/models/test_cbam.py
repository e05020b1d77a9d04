"""CBAM against NumPy in float64 and against a PyTorch module of the authors' structure."""

import itertools
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import models
from jaxatr.models import cbam

CHANNELS = [3, 16, 48]  # hidden layers of one (less than one asked for), one and three units


def module(train=False, **fields):
    norm = partial(nn.BatchNorm, use_running_average=not train, momentum=0.9, epsilon=1e-5)
    return models.CBAM(norm, **fields)


def random_case(channels, batch=4, size=(9, 6)):
    """A random map, and random variables instead of initial values."""
    draw = np.random.default_rng(channels)
    x = draw.normal(size=(batch, *size, channels)).astype(np.float32)
    variables = jax.eval_shape(module().init, jax.random.key(0), x)
    return x, jax.tree.map(lambda leaf: jnp.float32(draw.uniform(0.3, 1, leaf.shape)), variables)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_loops(variables, x, train):
    params, stats = jax.tree.map(np.float64, (variables["params"], variables["batch_stats"]))
    x = np.float64(x)
    batch, height, width, channels = x.shape

    def mlp(pooled):
        hidden, out = params["channel_hidden"], params["channel_out"]
        units = np.maximum(pooled @ hidden["kernel"] + hidden["bias"], 0)
        return units @ out["kernel"] + out["bias"]

    gated = np.empty_like(x)
    for n in range(batch):
        pixels = x[n].reshape(-1, channels)
        gated[n] = x[n] * sigmoid(mlp(pixels.mean(axis=0)) + mlp(pixels.max(axis=0)))
    pooled = np.pad(
        np.stack([gated.max(axis=-1), gated.mean(axis=-1)], axis=-1),
        ((0, 0), (3, 3), (3, 3), (0, 0)),
    )
    kernel = params["spatial_conv"]["kernel"][..., 0]
    score = np.empty((batch, height, width))
    for n, i, j in np.ndindex(score.shape):
        score[n, i, j] = np.sum(pooled[n, i : i + 7, j : j + 7] * kernel)
    mean, var = stats["spatial_norm"]["mean"], stats["spatial_norm"]["var"]
    if train:
        mean, var = score.mean(), score.var()
    scale, bias = params["spatial_norm"]["scale"], params["spatial_norm"]["bias"]
    return gated * sigmoid((score - mean) / np.sqrt(var + 1e-5) * scale + bias)[..., None]


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("channels", CHANNELS)
def test_equals_plain_loops(channels, train):
    x, variables = random_case(channels)
    apply = jax.jit(partial(module(train).apply, mutable=["batch_stats"]))
    found, _ = apply(variables, x)
    np.testing.assert_allclose(found, by_loops(variables, x, train), rtol=1e-4, atol=1e-5)


def pytorch_cbam(channels):
    """The authors' modules and names (Jongchan/attention-module), shortened."""
    torch = pytest.importorskip("torch", reason="extra 'peers' is not installed")
    tnn = torch.nn

    class ChannelGate(tnn.Module):
        def __init__(self):
            super().__init__()
            sizes = channels, channels // 16
            first, second = tnn.Linear(*sizes), tnn.Linear(*sizes[::-1])
            self.mlp = tnn.Sequential(tnn.Flatten(), first, tnn.ReLU(), second)

        def forward(self, x):
            pools = tnn.functional.adaptive_avg_pool2d, tnn.functional.adaptive_max_pool2d
            return x * torch.sigmoid(sum(self.mlp(p(x, 1)) for p in pools))[:, :, None, None]

    class SpatialGate(tnn.Module):
        def __init__(self):
            super().__init__()
            self.spatial = tnn.Sequential()
            self.spatial.conv = tnn.Conv2d(2, 1, 7, padding=3, bias=False)
            self.spatial.bn = tnn.BatchNorm2d(1, eps=1e-5, momentum=0.1)

        def forward(self, x):
            both = torch.stack([x.amax(dim=1), x.mean(dim=1)], dim=1)
            return x * torch.sigmoid(self.spatial(both))

    class CBAM(tnn.Module):
        def __init__(self):
            super().__init__()
            self.ChannelGate, self.SpatialGate = ChannelGate(), SpatialGate()

        def forward(self, x):
            return self.SpatialGate(self.ChannelGate(x))

    return CBAM()


def load_into(net, variables):
    import torch

    variables = jax.tree.map(np.array, variables)
    params, stats = variables["params"], variables["batch_stats"]["spatial_norm"]
    arrays = {
        "ChannelGate.mlp.1.weight": params["channel_hidden"]["kernel"].T,
        "ChannelGate.mlp.1.bias": params["channel_hidden"]["bias"],
        "ChannelGate.mlp.3.weight": params["channel_out"]["kernel"].T,
        "ChannelGate.mlp.3.bias": params["channel_out"]["bias"],
        "SpatialGate.spatial.conv.weight": params["spatial_conv"]["kernel"].transpose(3, 2, 0, 1),
        "SpatialGate.spatial.bn.weight": params["spatial_norm"]["scale"],
        "SpatialGate.spatial.bn.bias": params["spatial_norm"]["bias"],
        "SpatialGate.spatial.bn.running_mean": stats["mean"],
        "SpatialGate.spatial.bn.running_var": stats["var"],
        "SpatialGate.spatial.bn.num_batches_tracked": np.array(0),
    }
    net.load_state_dict({name: torch.tensor(array) for name, array in arrays.items()})


@pytest.mark.parametrize("train", [False, True])
def test_agrees_with_a_pytorch_module_and_its_gradient(train):
    torch = pytest.importorskip("torch", reason="extra 'peers' is not installed")
    x, variables = random_case(48)
    net = pytorch_cbam(48).train(train)
    load_into(net, variables)
    t = torch.tensor(x).permute(0, 3, 1, 2).requires_grad_()
    weights = np.float32(np.random.default_rng(1).normal(size=x.shape))
    expected = net(t)
    (expected * torch.tensor(weights).permute(0, 3, 1, 2)).sum().backward()

    def weighted(x):
        y, state = module(train).apply(variables, x, mutable=["batch_stats"])
        return jnp.sum(y * weights), (y, state)

    gradient, (found, state) = jax.jit(jax.grad(weighted, has_aux=True))(x)
    back = [a.detach().permute(0, 2, 3, 1).numpy() for a in (expected, t.grad)]
    np.testing.assert_allclose(found, back[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradient, back[1], rtol=1e-3, atol=1e-4)
    mean = net.SpatialGate.spatial.bn.running_mean.numpy()
    np.testing.assert_allclose(state["batch_stats"]["spatial_norm"]["mean"], mean, rtol=1e-4)


@pytest.mark.parametrize(("channels", "hidden"), [(8, 1), (16, 1), (31, 1), (32, 2), (2048, 128)])
def test_hidden_units_of_the_channel_gate(channels, hidden):
    variables = jax.eval_shape(module().init, jax.random.key(0), jnp.zeros((1, 2, 2, channels)))
    shapes = jax.tree.map(jnp.shape, variables["params"])
    assert shapes["channel_hidden"] == {"kernel": (channels, hidden), "bias": (hidden,)}
    assert shapes["channel_out"] == {"kernel": (hidden, channels), "bias": (channels,)}
    assert shapes["spatial_conv"] == {"kernel": (7, 7, 2, 1)}


def test_at_first_the_spatial_gate_is_a_half_everywhere():
    x, _ = random_case(16)
    x = jnp.asarray(x)
    variables = module().init(jax.random.key(0), x)
    found = module().apply(variables, x)
    params = variables["params"]

    def mlp(pooled):
        return (
            nn.relu(pooled @ params["channel_hidden"]["kernel"]) @ params["channel_out"]["kernel"]
        )

    gate = sigmoid(mlp(x.mean((1, 2))) + mlp(x.max((1, 2))))[:, None, None]
    np.testing.assert_allclose(found, 0.5 * x * gate, rtol=1e-4, atol=1e-6)


def test_bfloat16_keeps_its_type_and_float32_parameters():
    x, variables = random_case(48)
    low = module(dtype=jnp.bfloat16)
    drawn = jax.eval_shape(low.init, jax.random.key(0), jnp.bfloat16(x))
    assert {leaf.dtype for leaf in jax.tree.leaves(drawn)} == {jnp.dtype("float32")}
    found = jax.jit(low.apply)(variables, jnp.bfloat16(x))
    assert found.dtype == jnp.bfloat16
    full = jax.jit(module().apply)(variables, x)
    assert np.abs(np.float32(found) - full).max() < 0.05 * np.abs(full).max()


@pytest.mark.parametrize("axis", [1, -1])
def test_the_first_maximum_has_the_gradient(axis):
    draw = np.random.default_rng(0)
    x, weights = np.float32(draw.integers(0, 3, (4, 9, 1, 5))), np.float32(draw.normal(size=5))
    gradient = jax.grad(lambda x: jnp.sum(cbam._maximum(x, axis) * weights))(jnp.asarray(x))
    expected = np.zeros_like(x)
    rest = [range(n) if a != axis % 4 else [0] for a, n in enumerate(x.shape)]
    for place in itertools.product(*rest):
        line = list(place)
        line[axis % 4] = slice(None)
        line[axis % 4] = list(x[tuple(line)]).index(x[tuple(line)].max())
        expected[tuple(line)] = weights.sum() if axis == -1 else weights[place[-1]]
    np.testing.assert_allclose(gradient, expected, rtol=1e-5)


def test_a_constant_map_has_a_finite_gradient():
    _, variables = random_case(16)
    x = jnp.ones((2, 3, 4, 16))
    gradient = jax.jit(jax.grad(lambda x: module().apply(variables, x).sum()))(x)
    assert np.isfinite(gradient).all() and np.abs(gradient).max() > 0
