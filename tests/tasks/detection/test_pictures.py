"""Pictures cut from scenes: boxes move with the pixels."""

import numpy as np
import pytest

from jaxatr.tasks.detection.assignment import IGNORED, PADDING
from jaxatr.tasks.detection.pictures import Pictures, Scene, mirrored, padded, resized

BOXES = np.float32([[12, 20, 40, 44], [100, 60, 130, 80], [60, 100, 76, 118]])


def filled(dtype=np.uint8):
    """A scene whose boxes are filled with 100, 150 and 200 on black."""
    image = np.zeros((140, 160, 1), dtype)
    for number, (x0, y0, x1, y1) in enumerate(BOXES.astype(int).tolist()):
        image[y0:y1, x0:x1] = 100 + 50 * number
    return Scene(image, BOXES, np.arange(3, dtype=np.int32))


def pictures(scene=None, **changed):
    fields = {"side": 96, "scales": (0.6, 1.6), "mosaic": 0.5, "aimed": 0.8, "flips": (True, True)}
    fields |= {"fill": np.zeros(1, np.uint8)} | changed
    return Pictures(lambda _: scene or filled(), 1, **fields)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("mosaic", [0.0, 1.0])
def test_boxes_move_with_the_pixels(mosaic, dtype):
    draw, trained = pictures(filled(dtype), mosaic=mosaic).draw, 0
    for number in range(40):
        picture = draw(0, (3, number))
        assert picture.image.shape == (96, 96, 1) and picture.image.dtype == dtype
        left = picture.image[..., 0].astype(float)
        for (x0, y0, x1, y1), label in zip(picture.boxes, picture.labels, strict=True):
            inner = left[int(np.ceil(y0 + 1)) : int(y1 - 1), int(np.ceil(x0 + 1)) : int(x1 - 1)]
            if label != IGNORED:
                trained += 1
                np.testing.assert_allclose(inner, 100 + 50 * label, atol=1)
            rows = slice(max(int(np.floor(y0 - 1)), 0), int(np.ceil(y1 + 1)))
            left[rows, max(int(np.floor(x0 - 1)), 0) : int(np.ceil(x1 + 1))] = 0
        assert left.max() == 0  # no part of a target is without a box
    assert trained > 40


def test_a_picture_depends_on_its_seed_only():
    once, again, other = (pictures().draw(0, seed) for seed in ((1, 2), (1, 2), (1, 3)))
    np.testing.assert_array_equal(once.image, again.image)
    np.testing.assert_array_equal(once.boxes, again.boxes)
    assert not np.array_equal(once.image, other.image)


def test_a_box_cut_by_the_edge_is_not_learned():
    scene = Scene(
        np.zeros((96, 200, 1), np.uint8), np.float32([[0, 10, 200, 20]]), np.zeros(1, int)
    )
    draw = pictures(scene, mosaic=0.0, scales=(1.0, 1.0)).draw
    labels = np.concatenate([draw(0, (number,)).labels for number in range(8)])
    shares = 96 / 200
    assert shares > 0.4 and set(labels.tolist()) == {0}
    scene = scene._replace(boxes=np.float32([[0, 10, 250, 20]]))
    draw = pictures(scene, mosaic=0.0, scales=(1.0, 1.0)).draw
    labels = np.concatenate([draw(0, (number,)).labels for number in range(8)])
    assert set(labels.tolist()) == {IGNORED}


def test_a_scene_smaller_than_the_picture_is_filled_up():
    scene = Scene(np.full((20, 30, 1), 9, np.uint8), np.float32([[0, 0, 30, 20]]), np.zeros(1, int))
    fill = np.array([77], np.uint8)
    picture = pictures(scene, mosaic=0.0, scales=(1.0, 1.0), fill=fill).draw(0, (5,))
    assert np.sum(picture.image == 9) == 600 and set(np.unique(picture.image)) == {9, 77}
    x0, y0, x1, y1 = picture.boxes[0].astype(int)
    assert np.all(picture.image[y0:y1, x0:x1] == 9) and (x1 - x0, y1 - y0) == (30, 20)


def test_a_scene_without_boxes_gives_pictures_without_boxes():
    empty = Scene(np.zeros((50, 50, 1), np.uint8), np.zeros((0, 4), np.float32), np.zeros(0, int))
    for mosaic in (0.0, 1.0):
        assert pictures(empty, mosaic=mosaic).draw(0, (1,)).boxes.shape == (0, 4)
    row = padded(empty, 2)
    assert row["labels"].tolist() == [PADDING, PADDING] and row["boxes"].shape == (2, 4)


def test_boxes_are_mirrored_about_the_middle():
    boxes = np.float32([[1, 2, 4, 9]])
    np.testing.assert_array_equal(mirrored(boxes, 10, 0), [[6, 2, 9, 9]])
    np.testing.assert_array_equal(mirrored(boxes, 10, 1), [[1, 1, 4, 8]])


def test_resizing_keeps_the_dtype_and_the_mean():
    image = np.random.default_rng(0).integers(0, 60000, (40, 60, 3)).astype(np.uint16)
    small = resized(image, 30, 20)
    assert small.shape == (20, 30, 3) and small.dtype == np.uint16
    np.testing.assert_allclose(small.mean(), image.mean(), rtol=0.03)
