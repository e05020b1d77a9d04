import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxatr.scenes import boxes


def some(n, seed=0, extent=30):
    draw = np.random.default_rng(seed)
    low = draw.uniform(0, extent, (n, 2))
    return np.concatenate([low, low + draw.uniform(1, extent, (n, 2))], axis=1)


def plain(first, second):
    """IoU and GIoU of two boxes by their definitions."""
    sides = [min(first[i + 2], second[i + 2]) - max(first[i], second[i]) for i in (0, 1)]
    shared = max(sides[0], 0) * max(sides[1], 0)
    areas = [(b[2] - b[0]) * (b[3] - b[1]) for b in (first, second)]
    union = sum(areas) - shared
    around = np.prod([max(first[i + 2], second[i + 2]) - min(first[i], second[i]) for i in (0, 1)])
    return shared / union, shared / union - (around - union) / around, shared / areas[0]


@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray])
def test_overlaps_are_those_of_the_definitions(convert):
    first, second = some(20), some(15, seed=1)
    expected = np.array([[plain(a, b) for b in second] for a in first])
    pairs = convert(first)[:, None], convert(second)
    for number, function in enumerate((boxes.iou, boxes.giou, boxes.covered)):
        found = function(*pairs)
        np.testing.assert_allclose(found, expected[..., number], atol=2e-6)
        np.testing.assert_allclose(jax.jit(function)(*pairs), found, atol=2e-6)


def test_overlaps_by_hand():
    one = np.array([0.0, 0.0, 10.0, 10.0])
    other = np.array([[5.0, 5.0, 15.0, 15.0], [10.0, 0.0, 20.0, 10.0], [0.0, 0.0, 10.0, 10.0]])
    np.testing.assert_allclose(boxes.iou(one, other), [25 / 175, 0, 1])
    np.testing.assert_allclose(boxes.giou(one, other), [25 / 175 - 50 / 225, 0, 1])


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int64"])
@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray])
def test_boxes_of_integers_do_not_wrap_around(convert, dtype):
    whole = np.array([[0, 0, 10, 10], [20, 20, 220, 240], [5, 200, 250, 255], [9, 9, 4, 4]])
    one, real = convert(whole.astype(dtype)), convert(whole.astype(float))
    for function in (boxes.iou, boxes.giou, boxes.covered, boxes.intersection):
        found, wanted = function(one[:, None], one), function(real[:, None], real)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    conversions = (boxes.of_xywh, boxes.of_centres, boxes.to_xywh, boxes.to_centres)
    for function in (boxes.area, *conversions, lambda one: boxes.clipped(one, 300, 9)):
        np.testing.assert_allclose(function(one), function(real), rtol=1e-6)
    corners = np.array([[9, 0], [200, 0], [200, 250], [9, 250]])
    assert boxes.polygon_area(convert(corners.astype(dtype))) == 191 * 250


def test_empty_boxes_overlap_nothing_and_have_finite_gradients():
    empty = jnp.array([3.0, 3.0, 3.0, 3.0])
    swapped = jnp.array([9.0, 3.0, 3.0, 8.0])
    for function in (boxes.iou, boxes.giou, boxes.covered):
        for other in (empty, swapped):
            value, slope = jax.value_and_grad(function)(empty, other)
            assert np.isfinite(value) and np.isfinite(slope).all()
    assert boxes.iou(np.array(swapped), np.array([0.0, 0.0, 20.0, 20.0])) == 0


def test_giou_pulls_boxes_together_that_do_not_meet():
    away, target = jnp.array([0.0, 0.0, 4.0, 4.0]), jnp.array([10.0, 0.0, 14.0, 4.0])
    assert boxes.iou(away, target) == 0
    slope = jax.grad(boxes.giou)(away, target)
    assert slope[2] > 0  # moving the right edge to the target helps
    check_grads(boxes.giou, (away, target + 0.3), 1, modes=["rev"], eps=1e-2)


def test_conversions():
    box = np.array([[10.0, 20.0, 14.0, 30.0]])
    assert boxes.to_xywh(box).tolist() == [[10, 20, 4, 10]]
    assert boxes.to_centres(box).tolist() == [[12, 25, 4, 10]]
    many = some(9)
    np.testing.assert_allclose(boxes.of_xywh(boxes.to_xywh(many)), many)
    np.testing.assert_allclose(boxes.of_centres(boxes.to_centres(many)), many)
    assert boxes.clipped(box, 12, 100).tolist() == [[10, 20, 12, 30]]
    assert boxes.area(boxes.clipped(box, 8, 100)) == 0


def test_rotated_boxes():
    box = np.array([0.0, 0.0, 4.0, 2.0])
    quarter = boxes.rotated(box, np.array(90.0))
    np.testing.assert_allclose(quarter, [[3, -1], [3, 3], [1, 3], [1, -1]], atol=1e-12)
    np.testing.assert_allclose(boxes.hull(quarter), [1, -1, 3, 3], atol=1e-12)
    far = boxes.rotated(some(8) + 1e5, np.linspace(0, 360, 8))
    np.testing.assert_allclose(boxes.polygon_area(far), boxes.area(some(8) + 1e5))
    np.testing.assert_allclose(boxes.polygon_area(far[:, ::-1]), boxes.area(some(8) + 1e5))
    one = boxes.rotated(box, np.array(45.0))
    np.testing.assert_allclose(jax.jit(boxes.rotated)(box, 45.0), one, atol=1e-5)
    np.testing.assert_allclose(
        boxes.hull(one), [2 - 4.5**0.5, 1 - 4.5**0.5, 2 + 4.5**0.5, 1 + 4.5**0.5]
    )
