"""Agreement of the maps of one image."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from jaxatr.explain import agreement


def maps():
    rng = np.random.default_rng(0)
    base, other = rng.normal(size=(2, 8, 8))
    near = {name: base + 0.3 * rng.normal(size=base.shape) for name in ("a", "b")}
    return near | {"c": np.exp(base), "d": other, "e": np.ones((8, 8))}


def test_correlations_are_spearmans():
    found = agreement(maps())
    for i, one in enumerate(found.methods[:4]):
        for j, other in enumerate(found.methods[:4]):
            expected = spearmanr(maps()[one].ravel(), maps()[other].ravel()).statistic
            np.testing.assert_allclose(found.correlations[i, j], expected, atol=1e-12)
    np.testing.assert_array_equal(found.correlations[4, :4], 0)  # the same everywhere


def test_large_maps_are_compared_in_cells():
    coarse = np.random.default_rng(1).normal(size=(8, 8))
    other = np.random.default_rng(2).normal(size=(8, 8))
    large = {name: np.kron(one, np.ones((4, 3))) for name, one in (("a", coarse), ("b", other))}
    grain = np.tile([[9.0, -9.0, 0.0], [-9.0, 9.0, 0.0]], (16, 8))
    large["a"] = large["a"] + grain  # whose mean over a cell is 0
    expected = spearmanr(coarse.ravel(), other.ravel()).statistic
    np.testing.assert_allclose(agreement(large).correlations[0, 1], expected, atol=1e-12)
    odd = {"a": coarse[:, :5].repeat(2, axis=0)[:13], "b": np.arange(65.0).reshape(13, 5)}
    assert agreement(odd).correlations.shape == (2, 2)


def test_a_sentence_says_which_agree():
    every = maps()
    found = agreement(every)
    assert found.groups == (("a", "b", "c"), ("d",), ("e",))
    assert found.sentence().startswith("a, b and c agree (mean rank correlation 0.9")
    assert found.sentence().endswith("; d and e agree with none.")
    near = {name: every[name] for name in "abc"}
    assert agreement(near).sentence().startswith("All 3 methods agree (mean rank")
    apart = {name: every[name] for name in "ade"}
    assert agreement(apart).sentence().startswith("No two methods agree")
    rest = near | {"x": -every["a"], "y": -every["b"]}
    assert agreement(rest).sentence().endswith("; x and y agree.")


def test_one_map_has_nothing_to_agree_with():
    with pytest.raises(ValueError, match="maps: got 1 of shapes"):
        agreement({"a": np.ones((2, 2))})
    with pytest.raises(ValueError, match="maps: got 2"):
        agreement({"a": np.ones((2, 2)), "b": np.ones((2, 3))})


def test_a_map_that_is_not_finite_is_named():
    bad = np.eye(8)
    bad[3, 3] = np.nan
    with pytest.raises(ValueError, match="maps: got values that are not finite from worse"):
        agreement({"fine": np.eye(8), "worse": bad})


def test_maps_of_equal_ranks_are_one_group():
    rng = np.random.default_rng(0)
    for _ in range(20):  # their correlation may be rounded to more than 1
        first = rng.random((8, 8))
        maps = {"a": first, "b": 3 * first, "c": rng.random((8, 8))}
        found = agreement(maps)
        assert found.correlations.max() <= 1 and found.groups[0] == ("a", "b")


def test_constant_maps_agree_with_none():
    maps = {name: np.full((20, 30), value) for name, value in (("one", 0.1), ("other", 0.2))}
    maps["drawn"] = np.random.default_rng(0).random((20, 30))
    found = agreement(maps)
    np.testing.assert_array_equal(found.correlations, np.eye(3))
    assert found.sentence().startswith("No two methods agree")
