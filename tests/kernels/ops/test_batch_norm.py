"""Batch norm against float64, flax, and finite differences."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.kernels import batch_norm, batch_statistics


def draw(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def exact(x, gamma, beta, mode, epsilon=1e-5):
    """Computes the paper's two equations with the batch's statistics."""
    axes = tuple(range(x.ndim - 1)) if mode == "spatial" else (0,)
    mean, variance = x.mean(axes), x.var(axes)
    return gamma * (x - mean) / np.sqrt(variance + epsilon) + beta, mean, variance


def arguments(mode):
    x = draw((5, 3, 2, 4)) * 2 + 3
    shape = (4,) if mode == "spatial" else (3, 2, 4)
    return x, draw(shape, 1), draw(shape, 2)


def trained(x, gamma, beta, mode, **options):
    return batch_norm(x, gamma, beta, *batch_statistics(x, mode=mode), mode=mode, **options)


@pytest.mark.parametrize("mode", ["spatial", "per_activation"])
def test_values_and_gradients_in_training(mode):
    x, gamma, beta = arguments(mode)
    single = [jnp.asarray(a, jnp.float32) for a in (x, gamma, beta)]
    wanted, mean, variance = exact(x, gamma, beta, mode)
    statistics = jax.jit(partial(batch_statistics, mode=mode))(single[0])
    for one, other in zip(statistics, (mean, variance), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    weights, along = (
        draw(x.shape, 3),
        [draw(a.shape, 4 + k) for k, a in enumerate((x, gamma, beta))],
    )

    def numeric(step):
        moved = [a + step * d for a, d in zip((x, gamma, beta), along, strict=True)]
        return (np.tanh(exact(*moved, mode)[0]) * weights).sum()

    def fn(*arrays):
        return (trained(*arrays, mode, activation="tanh") * weights).sum()

    gradient = jax.jit(jax.grad(fn, (0, 1, 2)))(*single)
    slope = sum(np.vdot(np.float64(g), d) for g, d in zip(gradient, along, strict=True))
    np.testing.assert_allclose(jax.jit(partial(trained, mode=mode))(*single), wanted, atol=1e-5)
    np.testing.assert_allclose(slope, (numeric(1e-6) - numeric(-1e-6)) / 2e-6, rtol=1e-3)


def test_inference_is_flaxs():
    x, gamma, beta = (jnp.asarray(a, jnp.float32) for a in arguments("spatial"))
    mean, variance = jnp.asarray(draw(4, 6), jnp.float32), jnp.arange(1.0, 5.0)
    module = nn.BatchNorm(use_running_average=True)
    variables = {
        "params": {"scale": gamma, "bias": beta},
        "batch_stats": {"mean": mean, "var": variance},
    }
    ours = jax.jit(partial(batch_norm, activation="relu"))(x, gamma, beta, mean, variance)
    theirs = jax.jit(lambda x: nn.relu(module.apply(variables, x)))(x)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_statistics_over_devices_are_those_of_the_whole_batch():
    x = jnp.asarray(draw((6, 2, 3)), jnp.float32)
    split = jax.vmap(lambda x: batch_statistics(x, axis_name="data"), axis_name="data")
    both = jax.jit(lambda x: (split(x.reshape(3, 2, 2, 3)), batch_statistics(x)))(x)
    for parts, whole in zip(*both, strict=True):
        np.testing.assert_allclose(parts, np.broadcast_to(whole, parts.shape), rtol=1e-5)


def test_features_far_from_zero_keep_their_variance():
    x = jnp.asarray(draw((64, 1)) + 1e4, jnp.float32)
    _, variance = jax.jit(batch_statistics)(x)
    np.testing.assert_allclose(variance, np.var(np.float64(x)), rtol=1e-3)


def test_half_precision_is_summed_in_single():
    x = jnp.asarray(np.float16(draw((512, 4))) + np.float16(100))
    ones = jnp.ones(4, jnp.float16)
    y = jax.jit(partial(trained, mode="spatial"))(x, ones, ones)
    wanted, *_ = exact(np.float64(x), 1, 1, "spatial")
    assert y.dtype == jnp.float16
    np.testing.assert_allclose(y, wanted, atol=1e-2)


def test_errors(unchecked):
    x, vector = jnp.zeros((2, 3, 4)), jnp.zeros(4)
    with pytest.raises(ValueError, match="mode: got 'layer', wanted one of"):
        batch_statistics(x, mode="layer")
    with pytest.raises(ValueError, match=r"scale: got shape \(4,\), wanted \(3, 4\)"):
        batch_norm(x, vector, vector, vector, vector, mode="per_activation")
    with pytest.raises(ValueError, match="x: got type uint8, wanted a floating-point one"):
        batch_norm(x.astype(jnp.uint8), vector, vector, vector, vector)
    with pytest.raises(ValueError, match="activation: got 'gelu'"):
        batch_norm(x, vector, vector, vector, vector, activation="gelu")
