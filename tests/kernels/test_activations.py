"""Activations against those of jax."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.kernels.activations import ACTIVATIONS

JAX = {"none": lambda a: a, "abs": jnp.abs} | {
    name: getattr(jax.nn, name) for name in set(ACTIVATIONS) - {"none", "abs"}
}
EVERYWHERE = tuple(np.linspace(-8, 8.5, 12).tolist())
FAR = (-1e4, -100.0, 100.0, 1e4)


@cache
def evaluated(points, dtype="float32"):
    """Returns values and slopes of every activation, ours and jax's, from one program."""

    @jax.jit
    def both(a):
        return [
            {name: (fn(a), jax.vmap(jax.grad(fn))(a)) for name, fn in table.items()}
            for table in (ACTIVATIONS, JAX)
        ]

    return both(jnp.array(points, dtype))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_values_and_slopes_are_jaxs(name):
    ours, theirs = (table[name] for table in evaluated(EVERYWHERE))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_the_slope_at_a_bend_is_one_sides_and_nan_is_kept():
    ours, _ = evaluated((0.0, 6.0, float("nan")))
    for name, bends in (("relu", 1), ("relu6", 2)):
        _, slopes = ours[name]
        np.testing.assert_array_equal(slopes[:bends], np.zeros(bends))  # PyTorch's, and jax's
    assert ours["elu"][1][0] == 1  # it has no bend there
    for name, (values, _) in ours.items():
        assert jnp.isnan(values[2]), name


@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", pytest.param("float16", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_large_arguments_stay_finite(name, dtype):
    for ours, theirs in zip(*(table[name] for table in evaluated(FAR, dtype)), strict=True):
        assert jnp.isfinite(ours).all()
        np.testing.assert_allclose(np.float32(ours), np.float32(theirs), atol=1e-3)


@pytest.mark.parametrize("name", ["sigmoid", "swish"])
def test_slopes_in_float16_are_those_of_float32(name):
    narrow, wide = (evaluated((-9.0, -6.0, 7.0), dtype)[0] for dtype in ("float16", "float32"))
    np.testing.assert_allclose(narrow[name][1], wide[name][1], rtol=2e-3, atol=1e-6)
