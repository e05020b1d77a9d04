import numpy as np
import pytest

from jaxatr.data import Split, holdout, select

COLUMNS = {
    "label": np.array([0, 0, 1, 1, 2, 2]),
    "id": np.arange(6),
    "range_m": np.array([1000, 2000, 1000, 2000, 1000, 3000]),
    "band": np.array(["visible", "thermal", "visible", "thermal", "visible", "visible"]),
    "tilt_deg": np.float32([0.1, 0.1, 0.2, 0.2, 7, 7]),
}


@pytest.fixture
def split():
    return Split("train", None, COLUMNS, ("car", "tank", "van"), np.dtype(np.uint8))


@pytest.mark.parametrize(
    "classes, where, expected",
    [
        (None, None, [0, 1, 2, 3, 4, 5]),
        (["van", "car"], None, [0, 1, 4, 5]),
        (None, {"range_m": (1000, 2000)}, [0, 1, 2, 3, 4]),
        (None, {"range_m": 2000}, [1, 3]),
        (None, {"range_m": np.array([3000])}, [5]),
        (None, {"band": "thermal"}, [1, 3]),
        (None, {"tilt_deg": (0.2, 7)}, [2, 3, 4, 5]),
        (("tank",), {"band": ["visible"], "range_m": [1000]}, [2]),
    ],
)
def test_every_condition_must_hold(split, classes, where, expected):
    assert select(split, classes=classes, where=where).tolist() == expected


@pytest.mark.parametrize(
    "classes, where, match",
    [
        (["trunk"], None, "no class 'trunk'.*car, tank, van"),
        (["tanks"], None, "did you mean 'tank'"),
        (None, {"rang_m": 1}, "no column 'rang_m'; did you mean 'range_m'"),
        (None, {"range_m": [1500]}, "never has the value 1500 .it has 1000, 2000, 3000"),
        (None, {"band": "infrared"}, "never has the value 'infrared'"),
        (["van"], {"band": "thermal"}, "no example of split 'train'"),
    ],
)
def test_missing_classes_are_named(split, classes, where, match):
    with pytest.raises(ValueError, match=match):
        select(split, classes=classes, where=where)


def test_holdout_parts_every_class():
    labels = np.repeat([0, 1, 2], [50, 10, 1])
    train, validation = holdout(labels, 0.2, seed=0)
    assert sorted([*train, *validation]) == list(range(61))
    assert np.bincount(labels[validation], minlength=3).tolist() == [10, 2, 0]
    assert np.bincount(labels[train]).tolist() == [40, 8, 1]


def test_holdout_is_of_its_seed():
    labels = np.repeat([0, 1], 40)
    same = [holdout(labels, 0.25, seed=1)[1].tolist() for _ in range(2)]
    assert same[0] == same[1] != holdout(labels, 0.25, seed=2)[1].tolist()


def test_holdout_leaves_training_one_of_each():
    train, validation = holdout(np.array([0, 0, 1, 1]), 0.99, seed=0)
    assert len(train) == len(validation) == 2
    assert holdout(np.array([4, 4]), 0.0, seed=0)[1].tolist() == []


def test_holdout_keeps_groups_together():
    groups = np.random.default_rng(0).permutation(np.repeat(np.arange(20), 3))
    labels = groups % 2
    train, validation = holdout(labels, 0.2, seed=0, groups=groups)
    assert sorted([*train, *validation]) == list(range(60))
    assert not set(groups[train]) & set(groups[validation])
    assert np.bincount(labels[validation]).tolist() == [6, 6]


@pytest.mark.parametrize("fraction", [-0.1, 1.0])
def test_holdout_refuses_values_that_are_not_fractions(fraction):
    with pytest.raises(ValueError, match="wanted a held-out fraction in"):
        holdout(np.array([0, 1]), fraction, seed=0)


def test_holdout_of_nothing():
    with pytest.raises(ValueError, match="labels: got none"):
        holdout(np.array([], int), 0.1, seed=0)
