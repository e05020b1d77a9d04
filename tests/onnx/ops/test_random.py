"""Random draws depend only on the key, have the right moments, and run under jit in 32 bits."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.onnx import ops

DRAWS = {
    "normal": lambda x, **k: ops.random_normal_like(x, mean=2.0, scale=3.0, **k),
    "uniform": lambda x, **k: ops.random_uniform_like(x, low=-1.0, high=3.0, **k),
    "bernoulli": lambda x, **k: ops.bernoulli(0 * x + 0.25, **k),
    "dropout": lambda x, **k: ops.dropout(0 * x + 1, 0.25, True, **k),
    "multinomial": lambda x, **k: ops.multinomial(
        jnp.log(jnp.asarray([[0.2, 0.8]], x.dtype)), sample_size=x.size, **k
    )[0],
}
MOMENTS = {
    "normal": (2, 3),
    "uniform": (1, 4 / 12**0.5),
    "bernoulli": (0.25, 0.1875**0.5),
    "dropout": (1, (1 / 3) ** 0.5),
    "multinomial": (0.8, 0.4),
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_moments_and_keys(name, dtype):
    def drawn(key):
        with ops.wide():
            return DRAWS[name](jnp.zeros(20_000, dtype), rng=key)

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # from jax, which cannot keep 64 bits here
        one = jax.jit(drawn)(jax.random.key(0))
    mean, deviation = MOMENTS[name]
    values = np.asarray(one)
    np.testing.assert_allclose(values.mean(), mean, atol=0.07)
    np.testing.assert_allclose(values.std(), deviation, atol=0.05)
    assert one.dtype == ("int32" if name == "multinomial" else dtype)
    np.testing.assert_allclose(one, drawn(jax.random.key(0)), atol=1e-5)
    assert not np.array_equal(one, jax.jit(drawn)(jax.random.key(1)))


@pytest.mark.parametrize("name", DRAWS)
def test_without_a_key_the_seed_decides(name):
    seeds = ({"seed": 3.0}, {"seed": 3.0}, {"seed": 4.0}, {}, {"seed": 0.0})
    drawn = jax.jit(lambda x: [DRAWS[name](x, **seed) for seed in seeds])
    three, again, four, none, zero = drawn(jnp.zeros(100))
    np.testing.assert_array_equal(three, again)
    assert not np.array_equal(three, four)
    np.testing.assert_array_equal(none, zero)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_places_of_extremes_of_every_width_under_jit(dtype):
    x = np.array([[3, 1, 3, 0, 0]]).astype(dtype)
    for function, expected in ((ops.argmax, (0, 2)), (ops.argmin, (3, 4))):
        for last in (0, 1):

            def placed(x, function=function, last=last):
                with ops.wide():
                    return function(x, axis=1, select_last_index=last)

            with ops.wide():
                given = jnp.asarray(x)
            assert jax.jit(placed)(given).item() == expected[last]
    if dtype != "int64":
        with ops.wide():
            assert ops.argmax(np.array([1, np.nan, 2, np.nan], dtype)).item() == 1
