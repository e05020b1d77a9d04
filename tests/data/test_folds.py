"""Folds of a cross-validation."""

import numpy as np
import pytest

from jaxatr.data import Fold, Split, check_divided, group_values, stratified_folds


def shares(labels, folds, count):
    """The number of examples of each class (columns) in each fold (rows)."""
    return np.array(
        [[np.sum((folds == k) & (labels == c)) for c in np.unique(labels)] for k in range(count)]
    )


def test_every_fold_has_an_equal_share_of_every_class():
    labels = np.random.default_rng(0).choice(4, 103, p=[0.5, 0.3, 0.15, 0.05])
    folds = stratified_folds(labels, 5, seed=3)
    assert set(folds) == set(range(5))
    assert np.ptp(shares(labels, folds, 5), axis=0).max() <= 1
    assert np.ptp(np.bincount(folds)) <= 4  # a class each
    np.testing.assert_array_equal(folds, stratified_folds(labels, 5, seed=3))
    assert np.any(folds != stratified_folds(labels, 5, seed=4))


def test_groups_stay_together_and_are_divided_as_evenly_as_scikit_learn_does():
    selection = pytest.importorskip("sklearn.model_selection")
    rng = np.random.default_rng(1)
    labels, groups = rng.integers(0, 3, 300), rng.integers(0, 40, 300)
    folds = stratified_folds(labels, 4, seed=0, groups=groups)
    assert all(len(set(folds[groups == group])) == 1 for group in np.unique(groups))
    peer = np.zeros(300, int)
    split = selection.StratifiedGroupKFold(4, shuffle=True, random_state=0)
    for number, (_, held_out) in enumerate(split.split(labels, labels, groups)):
        peer[held_out] = number
    own, other = (np.ptp(shares(labels, one, 4), axis=0).max() for one in (folds, peer))
    assert own <= other + 2


def test_a_class_of_two_groups_is_in_two_folds():
    labels = np.array([0] * 6 + [1] * 6)
    folds = stratified_folds(labels, 3, seed=0, groups=np.repeat([7, 8, 9, 4], 3))
    assert len(set(folds[:6])) == len(set(folds[6:])) == 2


@pytest.mark.parametrize("text", ["", "2", "0/5", "6/5", "1/1", "a/b", "1/5/2", "-1/5"])
def test_a_fold_is_a_number_and_their_number(text):
    assert Fold.parse("2/5") == (2, 5)
    with pytest.raises(ValueError, match=f"data.fold: got '{text}', wanted a fold and .* 2/5"):
        Fold.parse(text)


def test_what_stays_together_is_a_column_or_the_folder_of_a_file():
    columns = {
        "label": np.zeros(3, int),
        "serial": np.array(["a", "b", "a"]),
        "path": np.array([b"x/1.png", b"x/2.png", b"y/1.png"]),
    }
    split = Split("train", None, columns, ("tank",), np.dtype(np.uint8))
    assert group_values(split, "serial").tolist() == ["a", "b", "a"]
    assert group_values(split, "folder").tolist() == ["x", "x", "y"]
    with pytest.raises(ValueError, match="no column 'seral'; did you mean 'serial'"):
        group_values(split, "seral")
    bare = Split("train", None, {"label": np.zeros(3, int)}, ("tank",), np.dtype(np.uint8))
    with pytest.raises(ValueError, match="data.group_by: .* have no paths"):
        group_values(bare, "folder")


def test_a_class_that_cannot_be_divided_is_named():
    check_divided("tank", np.array([0, 1, 1]), 3)
    with pytest.raises(ValueError, match="got 5 folds, but tank has 3"):
        check_divided("tank", np.array([0, 1, 2]), 5)
    with pytest.raises(ValueError, match="of tank are in one fold"):
        check_divided("tank", np.array([1, 1, 1, 1]), 3, "serial")
