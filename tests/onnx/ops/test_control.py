"""Branches, loops and scans with known and traced conditions, and unsupported cases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.onnx import ops
from jaxatr.onnx.ops import control

X = np.float32([1.0, -2.0])


@pytest.fixture(autouse=True)
def wide():
    with ops.wide():
        yield


def double(i, cond, x):
    return cond, 2 * x


def halve_until_small(i, cond, x):
    x = x / 2
    return jnp.max(jnp.abs(x)) > 0.3, x


def test_a_known_number_of_rounds():
    np.testing.assert_allclose(ops.loop(3, None, X, body=double, outputs=1), 8 * X)
    jitted = jax.jit(lambda x: ops.loop(3, None, x, body=double, outputs=1))
    np.testing.assert_allclose(jitted(X), 8 * X)
    np.testing.assert_allclose(ops.loop(3, False, X, body=double, outputs=1), X)


def test_a_traced_number_of_rounds():
    looped = jax.jit(lambda n, x: ops.loop(n, None, x, body=double, outputs=1))
    for n in (0, 1, 4):
        np.testing.assert_allclose(looped(np.int64(n), X), 2.0**n * X)


@pytest.mark.parametrize("limit", [None, 2, 9])
def test_a_condition_that_is_data(limit):
    def looped(x):
        return ops.loop(limit, None, x, body=halve_until_small, outputs=1)

    expected, rounds = X, 0
    while (rounds == 0 or np.abs(expected).max() > 0.3) and rounds != limit:
        expected, rounds = expected / 2, rounds + 1
    np.testing.assert_allclose(looped(X), expected)
    np.testing.assert_allclose(jax.jit(looped)(X), expected)


def test_scan_outputs_are_stacked_and_need_known_rounds():
    def body(i, cond, x):
        return cond, x + 1, x * i

    last, stacked = ops.loop(3, None, X, body=body, outputs=2)
    np.testing.assert_allclose(last, X + 3)
    np.testing.assert_allclose(stacked, [(X + i) * i for i in range(3)])
    with pytest.raises(ValueError, match="number of iterations"):
        jax.jit(lambda n: ops.loop(n, None, X, body=body, outputs=2))(3)


def test_scan_outputs_of_as_many_rounds_as_are_unrolled(monkeypatch):
    monkeypatch.setattr(control, "UNROLLED", 4)

    def body(i, cond, x):
        return cond, 2 * x, x

    looped = jax.jit(lambda x: ops.loop(4, None, x, body=body, outputs=2))
    last, stacked = looped(X)
    np.testing.assert_allclose(last, 16 * X)
    np.testing.assert_allclose(stacked, [2**i * X for i in range(4)])
    with pytest.raises(ValueError, match="scan outputs"):
        jax.jit(lambda x: ops.loop(5, None, x, body=body, outputs=2))(X)


def test_branches():
    def choose(cond, x):
        return ops.if_(cond, then_branch=lambda: (x + 1,), else_branch=lambda: (x * 3,))

    for cond in (True, False):
        expected = X + 1 if cond else 3 * X
        np.testing.assert_allclose(choose(np.array(cond), X), expected)
        np.testing.assert_allclose(jax.jit(choose)(cond, X), expected)


def test_a_scan_along_other_axes_and_backwards():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 5)).astype(np.float32), rng.normal(size=(5, 2)).astype(np.float32)

    def body(state, a, b):
        state = state + a * b
        return state, state - b

    def scanned(x):
        return ops.scan(
            np.zeros(2, np.float32),
            x,
            y,
            body=body,
            num_scan_inputs=2,
            scan_input_axes=(1, 0),
            scan_input_directions=(0, 1),
            scan_output_axes=(1,),
            scan_output_directions=(1,),
            outputs=2,
        )

    state, rows = np.zeros(2, np.float32), []
    for i in range(5):
        state = state + x[:, i] * y[4 - i]
        rows.append(state - y[4 - i])
    last, stacked = scanned(x)
    np.testing.assert_allclose(last, state, rtol=1e-5)
    np.testing.assert_allclose(stacked, np.stack(rows[::-1], 1), rtol=1e-5)
    gradient = jax.grad(lambda x: scanned(x)[0].sum())(jnp.asarray(x))
    np.testing.assert_allclose(gradient, y[::-1].T, rtol=1e-5)


def test_the_gradient_of_a_function():
    got = ops.gradient(X, 3 * X, body=lambda a, b: (a * a * b,), count=2)
    np.testing.assert_allclose(got[0], 6 * X * X)
    np.testing.assert_allclose(got[1], X * X)


def test_a_loop_of_no_round_has_scan_outputs_of_the_bodys_type_and_shape():
    def body(i, cond, x):
        return cond, x, jnp.asarray(x, "int32")[:, None] + i, np.array("text", object)

    for rounds, cond in ((0, None), (5, False)):
        x, numbers, texts = ops.loop(rounds, cond, X, body=body, outputs=3)
        np.testing.assert_array_equal(x, X)
        assert numbers.shape == (0, 2, 1) and numbers.dtype == "int64"
        assert texts.shape == (0,) and texts.dtype == object
