"""Chips to label, against hand-derived values, plain loops and scikit-learn's clusters."""

import numpy as np
import pytest
from sklearn.cluster import KMeans

from jaxatr.openset import labelling
from jaxatr.openset.labelling import COVERS, GROUPED, STRANGE, UNCERTAIN, Choice


def drawn(n=40, d=3, k=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)).astype(np.float32), rng.dirichlet(np.ones(k), n)


def rows_of(choices):
    return [one.row for one in choices]


def test_the_margin_of_one_class_and_of_one_that_is_not_a_number():
    assert labelling.margins(np.array([[1.0], [0.25]])).tolist() == [1, 0.25]
    found = labelling.margins(np.array([[0.1, 0.2, 0.7], [np.nan, 1, 0], [0.5, 0.5, 0]]))
    np.testing.assert_allclose(found, [0.5, 1, 0])


def test_by_margin_the_smallest_come_first_and_equal_ones_by_their_order():
    features, probabilities = drawn()
    probabilities[30] = probabilities[7]
    gaps = []
    for number, row in enumerate(probabilities.tolist()):
        *_, second, first = sorted(row)
        gaps.append((first - second, number))
    found = labelling.to_label(features, probabilities, 12, method="margin")
    assert rows_of(found) == [number for _, number in sorted(gaps)[:12]]
    assert {one.why for one in found} == {UNCERTAIN}
    certain = np.eye(4)[[0] * 40]
    assert labelling.to_label(features, certain, 1)[0].why == COVERS
    assert labelling.to_label(features, probabilities, 1, method="coverage")[0].why == COVERS


@pytest.mark.parametrize("labelled", [None, 5])
def test_coverage_is_that_of_loops(labelled):
    features, probabilities = drawn()
    features[20] = features[3]  # as far, and later
    there = None if labelled is None else drawn(labelled, seed=1)[0]
    centres = [] if there is None else there.astype(float).tolist()
    chosen = []
    if there is None:
        mean = features.mean(axis=0, dtype=float)
        chosen.append(min(range(40), key=lambda i: ((features[i] - mean) ** 2).sum()))
        centres.append(features[chosen[0]].tolist())
    while len(chosen) < 10:
        apart = [
            -1 if i in chosen else min(((features[i] - np.array(c)) ** 2).sum() for c in centres)
            for i in range(40)
        ]
        chosen.append(apart.index(max(apart)))
        centres.append(features[chosen[-1]].tolist())
    found = labelling.to_label(features, probabilities, 10, labelled=there, method="coverage")
    assert rows_of(found) == chosen


def test_mixed_takes_the_one_nearest_to_the_centre_of_each_cluster_by_uncertainty():
    features, probabilities = drawn(120)
    margin = labelling.margins(probabilities)
    order = sorted(range(120), key=lambda i: margin[i])[:100]
    points = features[order].astype(float)
    weights = (1 - margin[order]) ** 2
    model = KMeans(5, n_init=1, max_iter=30, random_state=3).fit(points, sample_weight=weights)
    nearest = []
    for number, centre in enumerate(model.cluster_centers_):
        own = [i for i in range(100) if model.labels_[i] == number]
        nearest.append(min(own, key=lambda i: ((points[i] - centre) ** 2).sum()))
    found = labelling.to_label(features, probabilities, 5, seed=3)
    assert rows_of(found) == [order[i] for i in sorted(nearest)]
    assert found == labelling.to_label(features, probabilities, 5, seed=3)


def test_mixed_finds_every_heap_that_the_margin_alone_leaves_out():
    rng = np.random.default_rng(0)
    heaps = np.repeat(np.arange(4), 10)
    features = (np.eye(4)[heaps] * 10 + rng.normal(size=(40, 4)) / 10).astype(np.float32)
    certainty = 0.5 + heaps / 100  # the first heap is the least certain
    probabilities = np.stack([certainty, 1 - certainty], axis=1)
    by_margin = labelling.to_label(features, probabilities, 4, method="margin")
    assert {heaps[row] for row in rows_of(by_margin)} == {0}
    found = labelling.to_label(features, probabilities, 4)
    assert heaps[rows_of(found)].tolist() == [0, 1, 2, 3]


def test_unknown_examples_get_their_share_by_groups_spread_over_the_ranks():
    features, probabilities = drawn(20, d=2)
    unknown = np.arange(20) >= 12  # 8 of 20: 4 of 10
    features[12:] = [[0, 0], [0, 1], [0, 2], [9, 0], [9, 1], [9, 2], [50, 0], [4, 40]]
    groups = [np.array([13, 12, 14]), np.array([16, 15, 17])]
    found = labelling.to_label(
        features, probabilities, 10, unknown=unknown, groups=groups, method="margin"
    )
    strangers = [one for one in found if unknown[one.row]]
    # The centres, and then those farthest from all that are chosen.
    assert strangers == [
        Choice(13, GROUPED, 0),
        Choice(16, GROUPED, 1),
        Choice(18, STRANGE),
        Choice(19, STRANGE),
    ]
    assert [place for place, one in enumerate(found) if unknown[one.row]] == [1, 3, 6, 8]
    half = labelling.to_label(features, probabilities, 4, unknown=np.arange(20) >= 1)
    assert sum(row >= 1 for row in rows_of(half)) == 3  # one known example is all there is
    half = labelling.to_label(features, probabilities, 4, unknown=np.arange(20) >= 2)
    assert sum(row >= 2 for row in rows_of(half)) == 2


@pytest.mark.parametrize("method", labelling.METHODS)
def test_what_is_not_finite_comes_last_and_nothing_comes_twice(method):
    features, probabilities = drawn(12)
    features[2, 1], features[9], probabilities[4] = np.nan, np.inf, np.nan
    unknown = np.arange(12) >= 8
    found = rows_of(labelling.to_label(features, probabilities, 12, unknown=unknown, method=method))
    assert sorted(found) == list(range(12))
    known = [row for row in found if row < 8]
    assert known[-1] == 2 and [row for row in found if row >= 8][-1] == 9
    equal = rows_of(
        labelling.to_label(features[:1].repeat(9, 0), probabilities[:9], 6, method=method)
    )
    assert len({*equal}) == 6


def test_counts_and_methods_that_cannot_be():
    features, probabilities = drawn(5)
    for count in (0, 6):
        with pytest.raises(ValueError, match=f"count: got {count}, wanted 1 to 5"):
            labelling.to_label(features, probabilities, count)
    with pytest.raises(ValueError, match="method: got 'best', wanted one of mixed, margin"):
        labelling.to_label(features, probabilities, 2, method="best")


def test_an_example_of_the_only_class_is_not_called_uncertain():
    chosen = labelling.to_label(np.eye(3), np.ones((3, 1)), 2, method="margin")
    assert [(one.row, one.why) for one in chosen] == [(0, COVERS), (1, COVERS)]
