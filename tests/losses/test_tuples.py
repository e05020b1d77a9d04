"""Equations 1 and 2 against hand-derived values, plain loops in float64, and their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxatr import losses

# Compiling single operations takes longer than compiling a small loss at once.
contrastive = jax.jit(losses.contrastive, static_argnames="margin")
triplet = jax.jit(losses.triplet, static_argnames="margin")


def draw(seed, count=3, b=8, d=4):
    rng = np.random.default_rng(seed)
    return list(rng.normal(size=(count, b, d)) * 0.5), rng.random(b) < 0.5


def f32(arrays):
    return [np.float32(a) for a in arrays]


def loop_contrastive(first, second, same, margin):
    values = []
    for x, y, alike in zip(first, second, same, strict=True):
        distance = sum((x - y) ** 2) ** 0.5
        values.append(distance**2 if alike else max(margin - distance, 0) ** 2)
    return np.array(values)


def loop_triplet(reference, positive, negative, margin):
    values = []
    for r, p, n in zip(reference, positive, negative, strict=True):
        values.append(max(sum((r - p) ** 2) - sum((r - n) ** 2) + margin, 0))
    return np.array(values)


def test_contrastive_hand_derived():
    # Distances 0.5, 0.5, 5: one class, squared; two classes, what is left of the margin, squared.
    first = np.zeros((3, 2), np.float32)
    second = np.float32([[0.3, 0.4], [0.3, 0.4], [3.0, 4.0]])
    value = contrastive(first, second, np.array([True, False, False]), margin=0.75)
    np.testing.assert_allclose(value, [0.25, 0.0625, 0.0], atol=1e-7)


def test_triplet_hand_derived():
    # 0.25 - 0.36 + 0.2 and 0.25 - 1 + 0.2.
    reference, positive = np.zeros((2, 2), np.float32), np.float32([[0.3, 0.4]] * 2)
    negative = np.float32([[0.6, 0.0], [1.0, 0.0]])
    value = triplet(reference, positive, negative)
    np.testing.assert_allclose(value, [0.09, 0.0], atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_agree_with_plain_loops(seed):
    (a, b, c), same = draw(seed)
    value = contrastive(*f32([a, b]), same, margin=1.5)
    np.testing.assert_allclose(value, loop_contrastive(a, b, same, 1.5), atol=2e-6)
    value = triplet(*f32([a, b, c]), margin=0.6)
    np.testing.assert_allclose(value, loop_triplet(a, b, c, 0.6), atol=2e-6)


def test_gradients_agree_with_finite_differences():
    (a, b, c), same = draw(4)
    a, b, c = f32([a, b, c])
    check_grads(lambda a, b: contrastive(a, b, same), (a, b), 1, modes=["rev"], rtol=2e-2)
    check_grads(triplet, (a, b, c), 1, modes=["rev"], rtol=2e-2)


def test_points_that_coincide():
    point, same = np.ones((2, 3), np.float32), np.array([True, False])
    loss = lambda x: losses.contrastive(x, point, same).sum()  # noqa: E731
    value, gradient = jax.jit(jax.value_and_grad(loss))(point)
    assert value == 1.0  # of two classes and in one place: the whole margin
    np.testing.assert_array_equal(gradient, 0.0)
    np.testing.assert_allclose(triplet(point, point, point), 0.2)


def test_a_mask_is_a_subset():
    (a, b, c), same = draw(5)
    a, b, c = f32([a, b, c])
    valid = np.arange(8) % 3 > 0
    dirty = np.where(valid[:, None], a, np.nan)
    for loss, rest in ((contrastive, (b, same)), (triplet, (b, c))):
        found = np.asarray(loss(dirty, *rest, valid=valid))
        np.testing.assert_array_equal(found[~valid], 0)
        np.testing.assert_array_equal(found[valid], np.asarray(loss(a, *rest))[valid])
        gradient = jax.grad(lambda x, f=loss, r=rest: f(x, *r, valid=valid).sum())(dirty)
        assert np.isfinite(gradient).all()
        np.testing.assert_array_equal(np.asarray(gradient)[~valid], 0)


def test_shapes_must_agree(unchecked):
    point = jnp.zeros((2, 3))
    with pytest.raises(AssertionError, match=r"shapes: \[\(2, 3\), \(1, 3\)\]"):
        losses.contrastive(point, point[:1], jnp.array([True, True]))
    with pytest.raises(AssertionError, match=r"shapes: .*\(2, 2\)"):
        losses.triplet(point, point, point[:, :2])
