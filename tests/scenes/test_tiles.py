import numpy as np
import pytest

from jaxatr.scenes import tiles


def seen(target, windows, least=1.0):
    """Returns the targets that a perfect detector finds in each window, in the window's pixels."""
    found = []
    for window in windows:
        low = np.maximum(np.array(target)[:, :2], window[:2])
        high = np.minimum(np.array(target)[:, 2:], window[2:])
        visible = ((high - low) >= least).all(axis=1)
        part = np.concatenate([low, high], axis=1)[visible]
        found.append(part - np.tile(window[:2], 2))
    return found


def merged(targets, height, width, side, overlap, jitter=0.0, labels=None, **options):
    windows = list(tiles.windows(height, width, side, overlap))
    draw = np.random.default_rng(0)
    parts = [part + draw.uniform(-jitter, jitter, part.shape) for part in seen(targets, windows)]
    scores = [draw.uniform(0.5, 1, len(part)) for part in parts]
    return tiles.merge(windows, parts, scores, labels, size=(height, width), **options)


@pytest.mark.parametrize(
    "height,width,side,overlap", [(50, 70, 20, 0), (50, 71, 20, 5), (7, 90, 20, 19)]
)
def test_windows_cover_the_image(height, width, side, overlap):
    count = np.zeros((max(height, side), max(width, side)), int)
    for window in tiles.windows(height, width, side, overlap):
        assert (window.x1 - window.x0, window.y1 - window.y0) == (side, side)
        count[window.y0 : window.y1, window.x0 : window.x1] += 1
    assert count[:height, :width].min() >= 1
    assert count.shape == (max(height, side), max(width, side))  # nothing beyond a large image


def test_bad_windows_are_refused():
    with pytest.raises(ValueError, match="overlap: got 8"):
        list(tiles.windows(20, 20, 8, 8))
    with pytest.raises(ValueError, match="image of 0x20"):
        list(tiles.windows(0, 20, 8, 2))


def test_a_scene_smaller_than_a_tile_is_padded():
    image = np.arange(12, dtype=np.uint8).reshape(3, 4, 1) + 1
    (window,) = tiles.windows(3, 4, 8, 2)
    cut = window.cut(image)
    assert cut.shape == (8, 8, 1)
    assert (cut[:3, :4] == image).all() and cut.sum() == image.sum()


@pytest.mark.parametrize("overlap", [0, 2, 8, 16])
@pytest.mark.parametrize("jitter", [0.0, 0.9])
@pytest.mark.parametrize(
    "target",
    [
        [10, 10, 20, 20],  # whole in one window
        [56, 20, 72, 30],  # on a vertical seam, cut by every window that sees it if they touch
        [20, 50, 30, 80],  # on a horizontal seam
        [50, 52, 82, 83],  # where four windows meet
        [4, 30, 180, 44],  # longer than a window
        [57, 0, 69, 12],  # on a seam and at the image's edge
    ],
)
def test_a_target_is_found_once(target, overlap, jitter):
    found = merged([target], 192, 192, 64, overlap, jitter)
    assert len(found.boxes) == 1
    np.testing.assert_allclose(found.boxes[0], target, atol=2 * jitter + 1e-9)


def test_targets_side_by_side_on_a_seam_stay_apart():
    targets = [[50, 10, 78, 18], [50, 19, 78, 27], [52, 30, 62, 38], [67, 30, 80, 38]]
    for overlap in (0, 10):
        found = merged(targets, 64, 128, 64, overlap)
        np.testing.assert_allclose(sorted(found.boxes.tolist()), sorted(targets))


def test_a_target_seen_whole_by_one_window_keeps_that_box():
    windows = [tiles.Window(0, 0, 64, 64), tiles.Window(40, 0, 104, 64)]
    boxes = [np.array([[30.0, 20, 60, 40]]), np.array([[0.0, 19, 21, 42]])]  # the second is cut
    found = tiles.merge(windows, boxes, [np.array([0.4]), np.array([0.9])], size=(64, 104))
    assert found.boxes.tolist() == [[30, 20, 60, 40]] and found.indices.tolist() == [0]


def test_columns_follow_the_best_part_and_classes_are_merged_alone():
    windows = [tiles.Window(0, 0, 64, 64), tiles.Window(64, 0, 128, 64)]
    boxes = [np.array([[50.0, 20, 64, 40]]), np.array([[9.0, 0, 12, 9], [0, 20, 16, 40]])]
    scores = [np.array([0.4]), np.array([0.1, 0.9])]
    found = tiles.merge(windows, boxes, scores, size=(64, 128))
    assert found.boxes.tolist() == [[50, 20, 80, 40], [73, 0, 76, 9]]
    assert found.scores.tolist() == [0.9, 0.1] and found.indices.tolist() == [2, 1]
    labels = [np.array([0]), np.array([1, 1])]
    assert len(tiles.merge(windows, boxes, scores, labels, size=(64, 128)).boxes) == 3


def test_duplicates_in_the_overlap_are_suppressed_and_unusable_boxes_dropped():
    windows = [tiles.Window(0, 0, 64, 64), tiles.Window(32, 0, 96, 64)]
    boxes = [np.array([[40.0, 20, 50, 30], [np.nan, 0, 1, 1]]), np.array([[8.0, 20, 18, 31]])]
    found = tiles.merge(windows, boxes, [np.array([0.5, 1]), np.array([0.6])], size=(64, 96))
    assert found.boxes.tolist() == [[40, 20, 50, 31]]
    nothing = tiles.merge(windows, [np.zeros((0, 4))] * 2, [np.zeros(0)] * 2, size=(64, 96))
    assert nothing.boxes.shape == (0, 4)
    assert tiles.merge([], [], [], size=(64, 96)).boxes.shape == (0, 4)


def test_infinite_scores_are_the_highest():
    """The contrast of a target on a background of 0, as CFAR finds it, is infinite."""
    windows = [tiles.Window(0, 0, 40, 40)]
    boxes = [np.array([[1.0, 1, 9, 9], [20, 20, 30, 30], [1, 1, 9, 10]])]
    found = tiles.merge(windows, boxes, [np.array([5.0, 1e300, np.inf])], size=(40, 40))
    assert found.scores.tolist() == [np.inf, 1e300] and found.indices.tolist() == [2, 1]
