"""Sums over pixels and their transpose, against NumPy and under jax's transformations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.kernels import batch_norm, batch_statistics
from jaxatr.kernels.ops.channels import spread, totals


def draw(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def test_totals_and_spread_by_hand():
    first, second = jnp.asarray([[1.0, 2.0], [3.0, 4.0]]), jnp.asarray([[0.0, 1.0], [0.0, 1.0]])
    for run in (totals, jax.jit(totals)):
        np.testing.assert_array_equal(run(first, second), [[4.0, 6.0], [0.0, 2.0]])
    (wide,) = spread((2, 1), jnp.asarray([5.0, 6.0]))
    np.testing.assert_array_equal(wide, [[[5.0, 6.0]], [[5.0, 6.0]]])


@pytest.mark.parametrize(
    "shape", [(5, 3), (1, 1, 4), (2, 7, 3), (3, 5, 6, 2), (2, 3, 4, 5, 3), (2, 0, 3, 4)]
)
def test_totals_of_any_rank_are_numpys(shape):
    arrays = [draw(*shape, seed=seed) for seed in (0, 1)]
    expected = [np.float64(array).reshape(-1, shape[-1]).sum(0) for array in arrays]
    np.testing.assert_allclose(jax.jit(totals)(*arrays), expected, rtol=1e-5, atol=1e-5)


def test_each_is_the_others_transpose():
    arrays, vectors = [draw(4, 3, 2), draw(4, 3, 2, seed=1)], [draw(2, seed=2), draw(2, seed=3)]

    @jax.jit
    def run(arrays, vectors):
        _, of_spread = jax.vjp(lambda *vectors: spread((4, 3), *vectors), *vectors)
        _, of_totals = jax.vjp(totals, *arrays)
        _, of_first = jax.vjp(lambda *vectors: spread((4, 3), *vectors)[0], *vectors)
        pulled = of_spread(arrays), of_totals(vectors), of_first(arrays[0])
        return *pulled, totals(*arrays), spread((4, 3), *vectors)

    of_spread, of_totals, of_first, summed, wide = run(arrays, vectors)
    np.testing.assert_allclose(of_spread, summed, rtol=1e-6)
    np.testing.assert_array_equal(of_totals, wide)
    expected = [np.sum(np.asarray(arrays[0]), axis=(0, 1)), [0, 0]]  # one is not used
    np.testing.assert_allclose(of_first, expected, rtol=1e-6)


def test_mapped_where_one_argument_is_not():
    many, one = draw(3, 4, 2), draw(4, 2, seed=1)
    run = jax.jit(jax.vmap(totals, (0, None)))
    expected = [many.sum(1), np.broadcast_to(one.sum(0), (3, 2))]
    np.testing.assert_allclose(run(many, one), expected, rtol=1e-5)
    many, one = np.asarray(many), np.asarray(one)
    map_spread = jax.jit(jax.vmap(lambda v, w: spread((4,), v, w), (1, None)))
    (wide, _) = map_spread(many[0], one[0])
    np.testing.assert_array_equal(wide, np.broadcast_to(many[0].T[:, None], (2, 4, 4)))


def plain(x, scale, shift):
    mean = x.mean((0, 1, 2))
    variance = ((x - mean) ** 2).mean((0, 1, 2))
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift


def ours(x, scale, shift):
    return batch_norm(x, scale, shift, *batch_statistics(x))


def test_a_norms_first_and_second_derivatives_are_those_of_its_definition():
    given = jnp.asarray(np.asarray(draw(3, 4, 5, 2)) + 7), draw(2, seed=1), draw(2, seed=2)
    along = tuple(jnp.asarray(np.cos(a)) for a in given)

    def derivatives(fn):
        gradients = jax.grad(lambda *a: jnp.sum(jnp.sin(fn(*a))), (0, 1, 2))
        return jax.jit(lambda *a: jax.jvp(gradients, a, along))(*given)

    for one, other in zip(*map(jax.tree.leaves, map(derivatives, (ours, plain))), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_a_first_image_unlike_the_others_costs_no_digits():
    x = np.float32(1e-2) * np.asarray(draw(8, 6, 6, 3)) + 1
    x[0] += 100
    mean, variance = jax.jit(batch_statistics)(x)
    np.testing.assert_allclose(mean, np.float64(x).mean((0, 1, 2)), rtol=1e-5)
    np.testing.assert_allclose(variance, np.float64(x).var((0, 1, 2)), rtol=1e-5)
