"""A call that XLA does not inline only changes how often things are computed."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.kernels import outlined


def reader_of_many(fn):
    def read(x):
        y = fn(x)
        return y[1:] * y[:-1], y + 1

    return read


def test_cpu_computes_it_once_and_others_inline_it():
    fn, x = jax.jit(reader_of_many(outlined(jnp.sin))), jnp.arange(64.0)
    compiled = fn.lower(x).compile().as_text()
    assert compiled is not None and compiled.count(" sine(") == 1
    other = fn.trace(x).lower(lowering_platforms=("cuda",)).as_text()
    assert "inlineable" not in other


def test_values_derivatives_and_batches():
    fn, x = outlined(lambda x: jnp.sin(x) * x), jnp.linspace(-1, 1, 7)
    np.testing.assert_allclose(fn(x), jnp.sin(x) * x, rtol=1e-6)
    expected = jnp.cos(x) * x + jnp.sin(x)
    np.testing.assert_allclose(jax.vmap(jax.grad(fn))(x), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jvp(fn, (x,), (jnp.ones(7),))[1], expected, rtol=1e-6)
