"""Exact distances with finite gradients, and the masked mean and variance."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.test_util import check_grads

from jaxatr.losses import distances, reduce


def loop_pairwise(points):
    return np.array([[sum((p - q) ** 2) for q in points] for p in points])


def test_distances_hand_derived():
    first, second = np.float32([[0, 0], [1, 1]]), np.float32([[3, 4], [1, 1]])
    np.testing.assert_array_equal(distances.squared_l2(first, second), [25.0, 0.0])
    np.testing.assert_array_equal(distances.l2(first, second), [5.0, 0.0])


def test_a_coincident_pair_passes_no_gradient():
    first, second = np.float32([[0, 0], [1, 1]]), np.float32([[3, 4], [1, 1]])
    gradient = jax.jit(jax.grad(lambda x: distances.l2(x, second).sum()))(first)
    np.testing.assert_allclose(gradient, [[-0.6, -0.8], [0.0, 0.0]], rtol=1e-6)


def test_invalid_examples_may_hold_anything():
    first = jnp.array([[jnp.nan, 0.0], [jnp.inf, 1.0], [3.0, 4.0]])
    valid = jnp.array([False, False, True])
    loss = lambda x: distances.l2(x, jnp.zeros_like(first), valid).sum()  # noqa: E731
    value, gradient = jax.jit(jax.value_and_grad(loss))(first)
    assert value == 5.0
    np.testing.assert_allclose(gradient, [[0, 0], [0, 0], [0.6, 0.8]], rtol=1e-6)


def test_pairwise_agrees_with_plain_loops():
    points = np.random.default_rng(0).normal(size=(7, 4))
    found = np.asarray(jax.jit(distances.pairwise_squared_l2)(np.float32(points)))
    np.testing.assert_allclose(found, loop_pairwise(points), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(np.diagonal(found), 0)


def test_pairwise_keeps_its_digits_far_from_the_origin():
    # Points 2⁻¹⁰ apart at 1: expanded into inner products, the distance would be lost.
    step = 2.0**-10
    points = 1 + step * np.float32([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    found = jax.jit(distances.pairwise_squared_l2)(points)
    np.testing.assert_array_equal(found, step**2 * np.array([[0, 1, 2], [1, 0, 1], [2, 1, 0]]))


def test_pairwise_gradient():
    rng = np.random.default_rng(1)
    points, weights = jnp.float32(rng.normal(size=(6, 3))), rng.normal(size=(6, 6))

    @jax.jit
    def weighted(points):
        return jnp.sum(jnp.float32(weights) * distances.pairwise_squared_l2(points))

    check_grads(weighted, (points,), 1, modes=["fwd", "rev"], rtol=1e-2)
    both = weights + weights.T
    expected = [sum(2 * both[i, j] * (p - q) for j, q in enumerate(points))
                for i, p in enumerate(np.float64(points))]  # fmt: skip
    np.testing.assert_allclose(jax.jit(jax.grad(weighted))(points), expected, rtol=1e-4, atol=1e-4)


def test_masked_moments():
    values = np.float32([1.0, np.nan, 4.0, 7.0])
    mask, nothing = np.array([True, False, True, True]), np.zeros(4, bool)
    moments = jax.jit(reduce.masked_moments)
    # Mean 4; squared deviations 9, 0, 9 over three.
    np.testing.assert_allclose(moments(values, mask), [4.0, 6.0], rtol=1e-6)
    slopes = jax.jit(jax.jacrev(reduce.masked_moments))
    np.testing.assert_allclose(slopes(values, mask)[1], [-2.0, 0.0, 0.0, 2.0], atol=1e-6)
    np.testing.assert_array_equal(moments(values, nothing), [0.0, 0.0])
    np.testing.assert_array_equal(slopes(values, nothing), np.zeros((2, 4)))


def test_the_gradient_of_distances_is_right_where_xla_fuses_the_making_of_the_points():
    """Points normalised within the same program, where rounding may differ between two copies."""
    rng = np.random.default_rng(0)
    given, weights = rng.normal(size=(16, 8)), rng.normal(size=(8, 8))

    def loss(weights):
        points = given.astype(weights.dtype) @ weights
        points /= jnp.linalg.norm(points, axis=1, keepdims=True)
        return jnp.sum(jnp.sin(distances.root(distances.pairwise_squared_l2(points))))

    found = jax.jit(jax.grad(loss))(np.float32(weights))
    with jax.enable_x64(True):
        expected = jax.jit(jax.grad(loss))(np.float64(weights))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_slope_between_close_points_is_right():
    points = np.array([[1.0, 0.0, 0.0], [1.0, 1e-5, 0.0], [0.0, 1.0, 0.0]])

    def loss(points):
        return jnp.sum(distances.root(distances.pairwise_squared_l2(points)))

    found = jax.jit(jax.grad(loss))(np.float32(points))
    with jax.enable_x64(True):
        expected = jax.jit(jax.grad(loss))(np.float64(points))
    np.testing.assert_allclose(found, expected, atol=1e-5)
