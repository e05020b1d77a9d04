"""Activations against jax's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.kernels.activations import ACTIVATIONS

JAX = {"none": lambda a: a, "abs": jnp.abs} | {
    name: getattr(jax.nn, name) for name in set(ACTIVATIONS) - {"none", "abs"}
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_values_and_slopes_are_jaxs(name):
    a = jnp.linspace(-8, 8.5, 12)
    np.testing.assert_allclose(ACTIVATIONS[name](a), JAX[name](a), atol=1e-6)
    ours, theirs = (jax.vmap(jax.grad(fn))(a) for fn in (ACTIVATIONS[name], JAX[name]))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_the_slope_at_a_bend_is_one_sides_and_nan_is_kept():
    for name, bends in (("relu", [0.0]), ("relu6", [0.0, 6.0])):
        slopes = jax.vmap(jax.grad(ACTIVATIONS[name]))(jnp.array(bends))
        np.testing.assert_array_equal(slopes, np.zeros(len(bends)))  # PyTorch's, and jax.nn.relu's
    for name in ACTIVATIONS:
        assert jnp.isnan(ACTIVATIONS[name](jnp.array(jnp.nan))), name


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_large_arguments_stay_finite(name, dtype):
    a = jnp.array([-1e4, -100.0, 100.0, 1e4], dtype)
    assert jnp.isfinite(ACTIVATIONS[name](a)).all()
    slopes = jax.vmap(jax.grad(ACTIVATIONS[name]))(a)
    wanted = jax.vmap(jax.grad(JAX[name]))(a)
    np.testing.assert_allclose(np.float32(slopes), np.float32(wanted), atol=1e-3)
