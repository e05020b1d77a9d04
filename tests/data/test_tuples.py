"""Batches of tuples and of classes: membership, order and resumption."""

import itertools

import numpy as np
import pytest

from jaxatr.data import Chip, Split, class_batches, concatenated, tuple_batches

COUNT = 12


def make_split(name="train", start=0, count=COUNT, **columns):
    """Records in which image i has the value i and the id 100 + i, of three classes in turn."""
    numbers = np.arange(start, start + count)
    images = [{"image": np.full((4, 3, 1), i, np.uint8)} for i in numbers]
    sides = {"height": 4, "width": 3, "channels": 1}
    columns |= {"label": numbers % 3, "id": numbers + 100}
    columns |= {side: np.full(count, value) for side, value in sides.items()}
    return Split(name, images, columns, ("a", "b", "c"), np.dtype(np.uint8))


def members():
    """Tuples of every example, the next one and the last one."""
    numbers = np.arange(COUNT)
    return np.stack([numbers, (numbers + 1) % COUNT, np.full(COUNT, COUNT - 1)], axis=1)


def tuples(batches=8, **options):
    split = make_split()
    numbers = np.arange(COUNT)
    options = {"chip": Chip(), "batch_size": 4, "seed": 3, **options}
    stream = tuple_batches(split, numbers, split.columns["label"], members(), **options)
    return list(itertools.islice(stream, batches)), stream


def classes(batches=40, labels=None, **options):
    split, numbers = make_split(), np.arange(COUNT)
    labels = split.columns["label"] if labels is None else labels
    options = {"chip": Chip(), "batch_size": 6, "per_class": 3, "seed": 3, **options}
    stream = class_batches(split, numbers[: len(labels)], labels, **options)
    return list(itertools.islice(stream, batches)), stream


def same(got, expected):
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert set(one) == set(other)
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


def test_a_tuples_rows_are_its_members():
    batches, _ = tuples(columns={"weight": np.arange(COUNT) * 10})
    for batch in batches:
        assert batch["image"].shape == (4, 3, 4, 3, 1) and batch["id"].shape == (4, 3)
        np.testing.assert_array_equal(batch["image"][..., 0, 0, 0], batch["id"] - 100)
        np.testing.assert_array_equal(batch["label"], (batch["id"] - 100) % 3)
        reference = batch["id"][:, 0] - 100
        np.testing.assert_array_equal(batch["id"] - 100, members()[reference])
        np.testing.assert_array_equal(batch["weight"], reference * 10)


def test_every_round_has_every_reference_once():
    batches, _ = tuples(batches=6)
    references = np.concatenate([batch["id"][:, 0] for batch in batches]).reshape(2, COUNT)
    for order in references:
        assert sorted(order) == list(range(100, 100 + COUNT))
    assert references[0].tolist() != references[1].tolist()
    assert np.concatenate([batch["draw"] for batch in batches]).tolist() == list(range(24))
    assert np.concatenate([batch["epoch"] for batch in batches]).tolist() == [0] * 12 + [1] * 12


def test_a_stream_continues_where_another_stopped():
    whole, _ = tuples(batches=9)
    same(tuples(batches=4, start=5)[0], whole[5:])
    _, stream = tuples(batches=3)
    state = stream.get_state()
    _, other = tuples(batches=0)
    other.set_state(state)
    same(list(itertools.islice(other, 6)), whole[3:])


@pytest.mark.parametrize("make", [tuples, classes])
def test_processes_share_the_batches(make):
    whole, _ = make(batches=5)
    first, second = (make(batches=5, process_index=i, process_count=2)[0] for i in range(2))
    joined = [
        {name: np.concatenate([a[name], b[name]]) for name in a}
        for a, b in zip(first, second, strict=True)
    ]
    same(joined, whole)


def test_batches_have_several_of_each_class():
    batches, _ = classes()
    seen = set()
    for batch in batches:
        labels, counts = np.unique(batch["label"], return_counts=True)
        assert counts.tolist() == [3, 3]
        assert len(set(batch["id"])) == 6  # no repetition
        np.testing.assert_array_equal(batch["label"], (batch["id"] - 100) % 3)
        seen.add(tuple(labels))
    assert len(seen) == 3  # every pair of classes occurs
    assert [batch["epoch"][0] for batch in batches[:5]] == [0, 0, 1, 1, 2]
    assert {int(n) for batch in batches for n in batch["draw"]} == set(range(40))


def test_too_few_classes_share_the_batch():
    batches, _ = classes(batches=3, batch_size=8, per_class=2)
    for batch in batches:
        _, counts = np.unique(batch["label"], return_counts=True)
        assert sorted(counts) == [2, 3, 3]


def test_a_class_that_is_too_small_repeats_itself():
    labels = np.array([0, 0, 0, 0, 1])
    batches, _ = classes(batches=5, labels=labels, batch_size=6, per_class=3)
    for batch in batches:
        assert np.sum(batch["label"] == 1) == 3
        assert set(batch["id"][batch["label"] == 1]) == {104}
    views = [pair for b in batches for pair in zip(b["id"], b["draw"], strict=True)]
    assert len(set(views)) == 30  # each copy is augmented anew


def test_class_batches_resume():
    whole, _ = classes(batches=7)
    _, stream = classes(batches=4)
    _, other = classes(batches=0)
    other.set_state(stream.get_state())
    same(list(itertools.islice(other, 3)), whole[4:])


def test_invalid_arguments_are_refused():
    with pytest.raises(ValueError, match="per_class: got 7, wanted 1 to the batch's 6"):
        classes(per_class=7)
    with pytest.raises(ValueError, match="a batch of 4 is not divisible by 3 processes"):
        tuples(process_count=3)


def test_splits_in_a_row():
    first = make_split("train", count=5, serial=np.arange(5))
    second = make_split("test", start=5, count=4)
    both = concatenated([first, second])
    assert (both.name, len(both), both.classes) == ("train+test", 9, ("a", "b", "c"))
    assert "serial" not in both.columns
    np.testing.assert_array_equal(both.columns["id"], np.arange(9) + 100)
    assert [int(both.image(i)[0, 0, 0]) for i in range(9)] == list(range(9))
    chips = both.chips(np.array([8, 0, 4, 5]), Chip(), (4, 3, 1))
    assert chips[:, 0, 0, 0].tolist() == [8, 0, 4, 5]
    assert concatenated([first]) is first
