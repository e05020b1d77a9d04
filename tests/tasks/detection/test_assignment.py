"""The places that train a box, against a plain loop, and the boxes at places."""

import math

import jax
import numpy as np

from jaxatr.tasks.detection.assignment import IGNORED, PADDING, UNKNOWN, assign, boxes_at, places

STRIDE = 4
assigning = jax.jit(assign, static_argnums=(2, 3))


def by_hand(boxes, labels, height, width):
    heat, weight = np.zeros((height, width)), np.zeros((height, width))
    owner, bell = np.full((height, width), -1), np.zeros((len(boxes), height, width))
    ignored = np.zeros((height, width), bool)
    for number, ((x0, y0, x1, y1), label) in enumerate(zip(boxes.tolist(), labels, strict=True)):
        column = min(max(math.floor((x0 + x1) / 2 / STRIDE), 0), width - 1)
        row = min(max(math.floor((y0 + y1) / 2 / STRIDE), 0), height - 1)
        across, down = (round(0.54 * side / 8) for side in (x1 - x0, y1 - y0))
        for r in range(height):
            for c in range(width):
                meets = 4 * c < x1 and 4 * c + 4 > x0 and 4 * r < y1 and 4 * r + 4 > y0
                ignored[r, c] |= label == IGNORED and meets
                if label < UNKNOWN or abs(c - column) > across or abs(r - row) > down:
                    continue
                x, y = (c - column) / ((2 * across + 1) / 6), (r - row) / ((2 * down + 1) / 6)
                bell[number, r, c] = math.exp(-(x * x + y * y) / 2)
                heat[r, c] = max(heat[r, c], bell[number, r, c])
                area = (x1 - x0) * (y1 - y0)
                taken = boxes[owner[r, c]]
                if owner[r, c] < 0 or area < (taken[2] - taken[0]) * (taken[3] - taken[1]):
                    owner[r, c] = number
    for number in range(len(boxes)):
        mine = np.where(owner == number, bell[number], 0)
        if mine.sum() > 0:
            weight += mine / mine.sum()
    return heat, ignored & (heat == 0), owner, weight


def test_places_are_assigned_as_by_a_plain_loop():
    rng = np.random.default_rng(0)
    for _ in range(3):
        start = rng.uniform(-6, 70, (12, 2))
        boxes = np.concatenate([start, start + rng.uniform(2, 40, (12, 2))], axis=1)
        boxes = boxes.astype(np.float32)
        labels = rng.integers(PADDING, 3, 12)
        assigned = assigning(boxes, labels, 18, 16)
        heat, ignored, owner, weight = by_hand(boxes, labels, 18, 16)
        np.testing.assert_allclose(assigned.heat, heat, atol=1e-5)
        np.testing.assert_array_equal(assigned.ignored, ignored)
        np.testing.assert_allclose(assigned.weight, weight, atol=1e-5)
        trained = weight > 0
        np.testing.assert_array_equal(np.asarray(assigned.owner)[trained], owner[trained])


def test_a_box_of_8_pixels_trains_the_place_of_its_centre_most():
    boxes, labels = np.float32([[20, 40, 28, 48], [0, 0, 0, 0]]), np.array([2, PADDING])
    assigned = assigning(boxes, labels, 16, 16)
    assert float(assigned.heat[11, 6]) == 1
    np.testing.assert_allclose(assigned.weight.sum(), 1, rtol=1e-6)
    assert np.unravel_index(np.argmax(assigned.weight), (16, 16)) == (11, 6)


def test_nothing_is_assigned_without_boxes():
    assigned = assigning(np.zeros((3, 4), np.float32), np.full(3, PADDING), 8, 8)
    assert not assigned.heat.any() and not assigned.weight.any() and not assigned.ignored.any()


def test_the_distances_to_the_sides_of_a_box_give_the_box():
    box = np.float32([3, 5, 30, 21])
    middle = np.asarray(places(8, 12))
    np.testing.assert_array_equal(middle[2, 5], [22, 10])
    distances = np.concatenate([middle - box[:2], box[2:] - middle], axis=-1)
    np.testing.assert_allclose(boxes_at(distances), np.broadcast_to(box, (8, 12, 4)), atol=1e-5)
