import itertools

import numpy as np
import pytest

from jaxatr.data import (
    Chip,
    Split,
    balanced_pass,
    class_weights,
    dataset,
    eval_batches,
    image_statistics,
    train_batches,
)


def make_split(count=10, shape=(6, 5, 1), dtype=np.uint8, odd=None):
    """Records in which image i has the constant value i and the id 100 + i."""
    images = [np.full(shape, i, dtype) for i in range(count)]
    if odd is not None:
        images[odd] = np.full((9, 9, 1), odd, dtype)
    columns = {"label": np.arange(count) % 3, "id": np.arange(count) + 100}
    sizes = np.array([image.shape for image in images])
    columns |= dict(zip(("height", "width", "channels"), sizes.T, strict=True))
    return Split("train", [{"image": x} for x in images], columns, ("a", "b", "c"), np.dtype(dtype))


def stream(split, indices=None, batches=9, start=None, chip=None, **arguments):
    indices = np.arange(len(split)) if indices is None else indices
    arguments = {"batch_size": 4, "seed": 0, **arguments}
    chip = chip or Chip()
    it = train_batches(split, indices, split.columns["label"][indices], chip=chip, **arguments)
    if start is not None:
        it.set_state(start)
    return list(itertools.islice(it, batches)), it


def ids(batches):
    return np.concatenate([batch["id"] for batch in batches]).tolist()


def test_every_round_has_every_example_once_in_a_new_order():
    batches, _ = stream(make_split(), batches=10)
    rounds = np.reshape(ids(batches), (4, 10))
    for order in rounds:
        assert sorted(order) == list(range(100, 110))
    assert len({tuple(order) for order in rounds}) == 4
    assert rounds[0].tolist() != sorted(rounds[0])
    epochs = np.concatenate([batch["epoch"] for batch in batches])
    assert epochs.tolist() == sum(([i] * 10 for i in range(4)), [])


def test_rows_belong_together_and_have_their_dtypes():
    split = make_split(dtype=np.uint16)
    for batch in stream(split)[0]:
        assert batch["image"].shape == (4, 6, 5, 1) and batch["image"].dtype == np.uint16
        assert {batch[name].dtype for name in ("label", "id", "epoch")} == {np.dtype(np.int32)}
        np.testing.assert_array_equal(batch["image"][:, 0, 0, 0], batch["id"] - 100)
        np.testing.assert_array_equal(batch["label"], (batch["id"] - 100) % 3)


def test_labels_are_the_ones_given():
    split = make_split()
    indices = np.array([7, 2, 5])
    it = train_batches(split, indices, np.array([0, 1, 2]), chip=Chip(), batch_size=3, seed=1)
    batch = next(it)
    assert dict(zip(batch["id"].tolist(), batch["label"].tolist(), strict=True)) == {
        107: 0,
        102: 1,
        105: 2,
    }


def test_the_order_is_of_the_seed():
    split = make_split()
    assert ids(stream(split)[0]) == ids(stream(split)[0]) != ids(stream(split, seed=1)[0])


def test_it_continues_exactly_where_it_stopped():
    split = make_split()
    whole, _ = stream(split, batches=12)
    for done in (0, 1, 5):
        _, it = stream(split, batches=done)
        rest, _ = stream(make_split(), batches=12 - done, start=it.get_state())
        for ours, expected in zip(rest, whole[done:], strict=True):
            for name, values in expected.items():
                np.testing.assert_array_equal(ours[name], values)


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_together_see_the_examples_of_one(processes):
    split = make_split()
    whole, _ = stream(split)
    shares = [stream(split, process_index=p, process_count=processes)[0] for p in range(processes)]
    for number, batch in enumerate(whole):
        for name, values in batch.items():
            parts = [share[number][name] for share in shares]
            np.testing.assert_array_equal(np.concatenate(parts), values)


def test_a_set_smaller_than_a_batch():
    batch = stream(make_split(3), batches=1, batch_size=8)[0][0]
    assert sorted(batch["id"].tolist()[:3]) == [100, 101, 102]
    assert batch["epoch"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2]


@pytest.mark.parametrize(
    "arguments, match",
    [
        ({"batch_size": 6, "process_count": 4}, "6 is not divisible by 4 processes"),
        ({"batch_size": 0}, "a batch of 0"),
        ({"indices": np.array([], int)}, "no examples of split 'train'"),
        ({"chip": Chip(center_crop=7)}, "6x5 is smaller than data.center_crop=7"),
    ],
)
def test_data_that_cannot_be_batched_are_refused(arguments, match):
    with pytest.raises(ValueError, match=match):
        stream(make_split(), **arguments)


def test_sizes_that_differ_are_refused_unless_the_chip_makes_them_one():
    split = make_split(odd=4)
    with pytest.raises(ValueError, match="6x5x1, 9x9x1.*center_crop or data.size"):
        stream(split)
    assert stream(split, chip=Chip(center_crop=5))[0][0]["image"].shape == (4, 5, 5, 1)
    assert stream(split, indices=np.array([0, 1, 2, 3]))[0][0]["image"].shape == (4, 6, 5, 1)


def test_labels_must_match_the_indices(unchecked):
    with pytest.raises(ValueError, match="wanted one for each of 3 indices"):
        eval_batches(make_split(), np.arange(3), np.arange(2), chip=Chip(), batch_size=2)
    with pytest.raises(ValueError, match="batch size"):
        eval_batches(make_split(), np.arange(3), np.arange(3), chip=Chip(), batch_size=0)


def test_eval_goes_through_once_and_again():
    indices = np.array([9, 3, 4, 0, 1])
    batches = eval_batches(make_split(), indices, np.arange(5), chip=Chip(), batch_size=2)
    assert len(batches) == 3
    for _ in range(2):
        seen = list(batches)
        assert ids(seen) == [109, 103, 104, 100, 101, 101]
        assert [batch["mask"].tolist() for batch in seen] == [[True, True]] * 2 + [[True, False]]
        assert [batch["label"].tolist() for batch in seen] == [[0, 1], [2, 3], [4, 4]]
        assert {batch["image"].shape for batch in seen} == {(2, 6, 5, 1)}


def test_statistics_are_numpys(monkeypatch):
    rng = np.random.default_rng(0)
    images = rng.normal([1e6, -5, 0], [1, 100, 0.1], (700, 4, 5, 3)).astype(np.float32)
    columns = {"label": np.zeros(700, int), "id": np.arange(700)}
    columns |= {name: np.full(700, n) for name, n in (("height", 4), ("width", 5), ("channels", 3))}
    split = Split("x", [{"image": x} for x in images], columns, ("a", "b"), np.dtype(np.float32))
    indices = np.arange(600)
    mean, std = image_statistics(split, indices, Chip())
    np.testing.assert_allclose(mean, images[:600].mean((0, 1, 2), dtype=np.float64), rtol=1e-9)
    np.testing.assert_allclose(std, images[:600].astype(float).std((0, 1, 2)), rtol=1e-6)
    few, _ = image_statistics(split, indices, Chip(), most=3)
    taken = images[[0, 299, 599]].astype(float)
    np.testing.assert_allclose(few, taken.mean((0, 1, 2)), rtol=1e-9)


def test_a_channel_that_never_changes_is_divided_by_one():
    values = np.array([0.0, 0.1, 7e8], np.float32)  # sums of 0.1 and 7e8 are rounded
    images = np.broadcast_to(values, (300, 7, 5, 3)).copy()
    images = np.concatenate([images, np.arange(300 * 35).reshape(300, 7, 5, 1)], axis=3)
    columns = {"label": np.zeros(300, int), "id": np.arange(300)}
    columns |= {name: np.full(300, n) for name, n in (("height", 7), ("width", 5), ("channels", 4))}
    split = Split("x", [{"image": x} for x in images], columns, ("a", "b"), np.dtype(np.float32))
    mean, std = image_statistics(split, np.arange(300), Chip())
    np.testing.assert_allclose(mean[:3], np.float64(values), rtol=1e-12)
    assert std[:3].tolist() == [1, 1, 1]
    assert std[3] == pytest.approx(np.arange(300 * 35).std())


@pytest.mark.parametrize("limit", [0, 1 << 30])
def test_memory_changes_nothing_but_the_reading(monkeypatch, limit):
    monkeypatch.setattr(dataset, "MEMORY_LIMIT", limit)
    split = make_split()
    reads = []
    image = split.image
    monkeypatch.setattr(split, "image", lambda index: reads.append(index) or image(index))
    batches, it = stream(split, batches=15)
    it.close()
    for batch in batches:
        np.testing.assert_array_equal(batch["image"][:, 0, 0, 0], batch["id"] - 100)
    if limit:
        assert len(reads) < 25  # 10, and what two threads read at the same moment
    else:
        assert len(reads) >= 60


def test_two_geometries_share_the_memory_limit(monkeypatch):
    split = make_split()
    monkeypatch.setattr(dataset, "MEMORY_LIMIT", 10 * 30 + 5)
    for chip in (Chip(), Chip(center_crop=3), Chip(size=3)):
        batches, _ = stream(split, chip=chip, batches=4)
        for batch in batches:
            np.testing.assert_array_equal(batch["image"][:, 0, 0, 0], batch["id"] - 100)
    stores = [store for store in split._stores.values() if store is not None]
    assert len(stores) == 1


@pytest.mark.parametrize(
    ("balance", "expected"),
    [("none", [64, 16, 4]), ("sqrt", [64, 32, 16]), ("effective", [64, 62, 62])],
)
def test_a_balanced_pass_repeats_rare_classes_and_leaves_nothing_out(balance, expected):
    labels = np.repeat([0, 1, 2, -1], [64, 16, 4, 3])
    rows, copies = balanced_pass(labels, balance)
    counts = np.bincount(labels[rows][labels[rows] >= 0])
    np.testing.assert_allclose(counts, expected, atol=2)
    assert set(rows.tolist()) == set(range(len(labels))) and np.sum(labels[rows] < 0) == 3
    assert len({*zip(rows.tolist(), copies.tolist(), strict=True)}) == len(rows)
    weights = class_weights(labels, 4, balance)
    assert weights[3] == 1
    np.testing.assert_allclose(weights[:3] @ [64, 16, 4] / 84, 1)


def test_copies_in_a_balanced_pass_are_augmented_as_in_different_epochs():
    split = make_split(9)
    labels = np.array([0] * 8 + [1])
    it = train_batches(
        split, np.arange(9), labels, chip=Chip(), batch_size=11, seed=0, balance="sqrt"
    )
    first, second = next(it), next(it)
    assert np.sum(first["label"] == 1) == 3  # one by the root of 8 times as often
    drawn = [(b["id"][i], b["epoch"][i]) for b in (first, second) for i in range(11)]
    assert len({(int(a), int(b)) for a, b in drawn}) == 22
    assert [set(batch["pass"].tolist()) for batch in (first, second)] == [{0}, {1}]


def test_an_unknown_way_to_balance_is_refused():
    with pytest.raises(ValueError, match="got 'all', wanted one of none, sqrt, effective"):
        class_weights(np.array([0, 1]), 2, "all")
