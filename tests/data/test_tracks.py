"""Grouping of chips into tracks: membership, order and padding."""

import numpy as np
import pytest

from jaxatr.data import Chip, Split, eval_tuple_batches, tracks_of


def make_split(track, frame, **columns):
    """Records in which image i has the constant value i, labelled by its track's number."""
    count = len(track)
    images = [{"image": np.full((4, 3, 1), i, np.uint8)} for i in range(count)]
    columns |= {"track": np.array(track), "frame": np.array(frame), "label": np.array(track) % 3}
    columns |= {"id": np.arange(count) + 100}
    columns |= {
        side: np.full(count, n)
        for side, n in zip(("height", "width", "channels"), (4, 3, 1), strict=True)
    }
    return Split("train", images, columns, ("a", "b", "c"), np.dtype(np.uint8))


def test_chips_come_in_the_order_of_time():
    split = make_split([7, 2, 7, 2, 2], [1, 5, 0, 4, 9])
    found = tracks_of(split, np.arange(5), longest=8)
    np.testing.assert_array_equal(found.members, [[3, 1, 4], [2, 0, 2]])
    np.testing.assert_array_equal(found.lengths, [3, 2])
    np.testing.assert_array_equal(found.last, [4, 0])


def test_positions_are_among_the_given_examples():
    split = make_split([0, 0, 1, 1, 1], [0, 1, 0, 1, 2])
    found = tracks_of(split, np.array([4, 2, 3]), longest=8)
    np.testing.assert_array_equal(found.members, [[1, 2, 0]])


def test_long_tracks_are_cut():
    split = make_split([3] * 5 + [4], [*range(5), 0])
    found = tracks_of(split, np.arange(6), longest=2)
    np.testing.assert_array_equal(found.members, [[0, 1], [2, 3], [4, 4], [5, 5]])
    np.testing.assert_array_equal(found.lengths, [2, 2, 1, 1])


def test_malformed_tracks_are_refused():
    split = make_split([0], [0])
    with pytest.raises(ValueError, match="longest: got 0"):
        tracks_of(split, np.arange(1), longest=0)
    columns = {name: values for name, values in split.columns.items() if name != "frame"}
    alone = Split("train", [], columns, split.classes, split.dtype)
    with pytest.raises(ValueError, match="split 'train' has no column 'frame': wanted data with"):
        tracks_of(alone, np.arange(1), longest=1)


def test_evaluation_goes_through_the_tracks_once():
    split = make_split([0, 0, 1, 2, 2], [0, 1, 0, 1, 0])
    numbers = np.arange(5)
    found = tracks_of(split, numbers, longest=8)
    batches = eval_tuple_batches(
        split,
        numbers,
        split.columns["label"],
        found.members,
        chip=Chip(),
        batch_size=2,
        columns={"length": found.lengths},
    )
    first, second = list(batches)
    assert first["image"].shape == (2, 2, 4, 3, 1)
    np.testing.assert_array_equal(first["image"][..., 0, 0, 0], [[0, 1], [2, 2]])
    np.testing.assert_array_equal(first["length"], [2, 1])
    np.testing.assert_array_equal(first["label"], [[0, 0], [1, 1]])
    np.testing.assert_array_equal(second["id"], [[104, 103], [104, 103]])
    np.testing.assert_array_equal(second["mask"], [True, False])
    assert len(batches) == 2 and len(list(batches)) == 2
