"""Pooling against XLA's reduce_window and PyTorch."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import kernels
from jaxatr.kernels import average_pool, max_pool


def draw(shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


GEOMETRIES = [(3, 2, 1), (2, 2, 0), (3, 1, 1), (2, 3, 0)]


@pytest.mark.parametrize(
    ("shape", "window", "stride", "padding"),
    [
        *(((2, 7, 8, 3), *geometry) for geometry in GEOMETRIES),
        ((1, 4, 5, 2), *GEOMETRIES[0]),
        *(pytest.param((1, 4, 5, 2), *one, marks=pytest.mark.slow) for one in GEOMETRIES[1:]),
    ],
)
def test_values_and_gradients_are_reduce_windows(shape, window, stride, padding):
    x = draw(shape)

    def expected(x):
        edge = (padding, padding)
        return nn.max_pool(x, (window, window), (stride, stride), (edge, edge))

    cotangent, tangent = draw(jax.eval_shape(expected, x).shape, 1), draw(x.shape, 2)

    @jax.jit
    def everything(x):
        pooled = lambda x: max_pool(x, window, stride, padding)  # noqa: E731
        (y, pull), (wanted, wanted_pull) = jax.vjp(pooled, x), jax.vjp(expected, x)
        _, forward = jax.jvp(pooled, (x,), (tangent,))
        return y, wanted, pull(cotangent)[0], wanted_pull(cotangent)[0], forward

    y, wanted, gradient, wanted_gradient, forward = map(np.asarray, everything(x))
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_allclose(gradient, wanted_gradient, atol=1e-6)
    # Forward and reverse mode are transposes of each other.
    inner = np.sum(forward * cotangent)
    np.testing.assert_allclose(inner, np.sum(gradient * tangent), rtol=1e-4)


def test_equal_pixels_the_first_gets_the_gradient():
    fn = jax.jit(jax.grad(lambda x: max_pool(x, 2, 2, 0).sum()))
    gradient = np.asarray(fn(jnp.ones((1, 2, 2, 1))))
    np.testing.assert_array_equal(gradient[0, :, :, 0], [[1, 0], [0, 0]])


def test_not_a_number_is_not_lost():
    x = np.zeros((1, 4, 4, 1), np.float32)
    x[0, 1, 1, 0] = np.nan
    assert np.isnan(jax.jit(lambda x: max_pool(x, 3, 2, 1))(x)).any()


def test_second_derivative_and_vmap():
    x = draw((3, 2, 6, 6, 2))
    fn = lambda x: jnp.sum(max_pool(x, 3, 2, 1) ** 3)  # noqa: E731
    second = jax.vmap(lambda x: jax.jvp(jax.grad(fn), (x,), (jnp.ones_like(x),))[1])
    ours, gradient, step = jax.jit(second)(x), jax.jit(jax.vmap(jax.grad(fn))), np.float32(1e-3)
    ahead, behind = (np.asarray(gradient(np.asarray(x) + sign * step)) for sign in (1, -1))
    numeric = (ahead - behind) / (2 * step)
    np.testing.assert_allclose(ours, numeric, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("algorithm", ["taps", "xla"])
@pytest.mark.parametrize("include", [False, True])
def test_averages_and_their_gradient_are_torchs(include, algorithm):
    torch = pytest.importorskip("torch")
    x, options = draw((2, 7, 8, 3)), {"stride": (2, 1), "padding": (1, 0)}
    given = torch.tensor(np.moveaxis(np.asarray(x), 3, 1).copy(), requires_grad=True)
    theirs = torch.nn.functional.avg_pool2d(given, (3, 2), **options, count_include_pad=include)
    (theirs**2).sum().backward()

    def loss(x):
        y = average_pool(x, (3, 2), **options, include_padding=include, algorithm=algorithm)
        return jnp.sum(y**2), y

    gradient, y = jax.jit(jax.grad(loss, has_aux=True))(x)
    np.testing.assert_allclose(y, theirs.detach().permute(0, 2, 3, 1).numpy(), atol=1e-6)
    np.testing.assert_allclose(gradient, given.grad.permute(0, 2, 3, 1).numpy(), atol=1e-5)


def test_same_padding_gives_as_many_as_strides_fit():
    x = draw((1, 5, 6, 2))
    ours = max_pool(x, 3, 2, "SAME")
    np.testing.assert_array_equal(ours, nn.max_pool(x, (3, 3), (2, 2), "SAME"))
    assert max_pool(x, (2, 3)).shape == max_pool(x, (2, 3), padding="VALID").shape == (1, 2, 2, 2)


def test_each_direction_is_asked_for_and_can_be_pinned():
    x = draw((1, 6, 6, 2))
    fn = lambda x: max_pool(x, 3, 2, 1).sum()  # noqa: E731
    with kernels.collected() as collector:
        jax.jit(fn).lower(x)
    (forward,) = collector.problems
    assert forward == "pooling forward max 1x6x6x2 3x3 s2x2 p1.1.1.1 float32"
    with kernels.collected() as collector:
        jax.jit(jax.grad(fn)).lower(x)
    (backward,) = collector.problems
    assert backward == forward.replace("forward", "backward")

    def scatters(name):
        with kernels.choices({backward: {"algorithm": name, "config": {}}}):
            return "select_and_scatter" in jax.jit(jax.grad(fn)).lower(x).as_text()

    assert scatters("xla") and not scatters("taps")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": jnp.zeros((2, 3))}, r"x: got shape \(2, 3\), wanted \[b, h, w, c\]"),
        ({"window": 0}, "window: got 0, wanted an int or a pair of ints >= 1"),
        ({"window": 9}, r"window: got \(9, 9\), which does not fit in \(4, 4\) pixels"),
        ({"stride": 0}, "stride: got 0"),
        ({"padding": 2}, "wanted less than the window"),
        ({"padding": "FULL"}, "padding: got 'FULL'"),
        ({"algorithm": "fast"}, "algorithm: got 'fast', wanted 'auto' or one of"),
    ],
)
def test_bad_input_is_named(change, message, unchecked):
    arguments = {"x": jnp.zeros((1, 4, 4, 1)), "window": 2} | change
    with pytest.raises(ValueError, match=message):
        max_pool(**arguments)
