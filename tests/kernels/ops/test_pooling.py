"""Max pooling against XLA's reduce_window."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.kernels import max_pool


def draw(shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


@pytest.mark.parametrize(
    ("window", "stride", "padding"), [(3, 2, 1), (2, 2, 0), (3, 1, 1), (2, 3, 0)]
)
@pytest.mark.parametrize("shape", [(2, 7, 8, 3), (1, 4, 5, 2)])
def test_values_and_gradients_are_reduce_windows(shape, window, stride, padding):
    x = draw(shape)

    def expected(x):
        edge = (padding, padding)
        return nn.max_pool(x, (window, window), (stride, stride), (edge, edge))

    cotangent, tangent = draw(expected(x).shape, 1), draw(x.shape, 2)

    @jax.jit
    def everything(x):
        pooled = lambda x: max_pool(x, window, stride, padding)  # noqa: E731
        (y, pull), (wanted, wanted_pull) = jax.vjp(pooled, x), jax.vjp(expected, x)
        _, forward = jax.jvp(pooled, (x,), (tangent,))
        return y, wanted, pull(cotangent)[0], wanted_pull(cotangent)[0], forward

    y, wanted, gradient, wanted_gradient, forward = everything(x)
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_allclose(gradient, wanted_gradient, atol=1e-6)
    # Forward and reverse mode are transposes of each other.
    inner = np.sum(forward * cotangent)
    np.testing.assert_allclose(inner, np.sum(gradient * tangent), rtol=1e-4)


def test_equal_pixels_the_first_gets_the_gradient():
    gradient = jax.grad(lambda x: max_pool(x, 2, 2, 0).sum())(jnp.ones((1, 2, 2, 1)))
    np.testing.assert_array_equal(gradient[0, :, :, 0], [[1, 0], [0, 0]])


def test_not_a_number_is_not_lost():
    x = jnp.zeros((1, 4, 4, 1)).at[0, 1, 1, 0].set(jnp.nan)
    assert jnp.isnan(max_pool(x, 3, 2, 1)).any()


def test_second_derivative_and_vmap():
    x = draw((3, 2, 6, 6, 2))
    fn = lambda x: jnp.sum(max_pool(x, 3, 2, 1) ** 3)  # noqa: E731
    second = jax.vmap(lambda x: jax.jvp(jax.grad(fn), (x,), (jnp.ones_like(x),))[1])
    ours, gradient, step = jax.jit(second)(x), jax.jit(jax.vmap(jax.grad(fn))), 1e-3
    numeric = (gradient(x + step) - gradient(x - step)) / (2 * step)
    np.testing.assert_allclose(ours, numeric, rtol=2e-2, atol=2e-2)
