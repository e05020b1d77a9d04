"""Projections against scikit-learn, and samples and coresets against plain loops."""

import numpy as np
import pytest

from jaxatr.openset.gallery import reduction


def draw(n=60, d=6, classes=4):
    rng = np.random.default_rng(0)
    return np.float32(rng.normal(size=(n, d))), rng.integers(0, classes, n)


def test_principal_directions_are_those_of_scikit_learn():
    from sklearn.decomposition import PCA

    rows = draw(n=200, d=7)[0] * np.arange(1, 8) + 5
    projection = reduction.pca(rows, 3)
    peer = PCA(3).fit(np.float64(rows))
    got, expected = projection(rows), peer.transform(np.float64(rows))
    np.testing.assert_allclose(np.abs(got), np.abs(expected), atol=1e-3)
    np.testing.assert_allclose(projection(rows.reshape(2, 100, 7)).reshape(-1, 3), got, rtol=1e-6)


def test_random_directions_keep_distances():
    rows, _ = draw(n=40, d=2000)
    projection = reduction.random_projection(rows, 500, seed=3)
    short = projection(rows)
    ratios = np.linalg.norm(short[1:] - short[0], axis=1)
    ratios /= np.linalg.norm(rows[1:] - rows[0], axis=1)
    assert abs(ratios.mean() - 1) < 0.03 and ratios.std() < 0.06  # 1 / sqrt(2 * 500) is .03
    again = reduction.random_projection(rows, 500, seed=3)
    np.testing.assert_array_equal(projection.axes, again.axes)


def test_a_sample_is_even_over_the_classes():
    labels = np.array([0] * 100 + [1] * 20 + [2] * 3)
    kept = reduction.sample(labels, 33)
    assert np.bincount(labels[kept]).tolist() == [15, 15, 3]
    assert (np.diff(kept) > 0).all() and np.array_equal(kept, reduction.sample(labels, 33))
    assert not np.array_equal(kept, reduction.sample(labels, 33, seed=1))
    assert reduction.sample(labels, 200).tolist() == list(range(123))
    assert labels[reduction.sample(labels, 1)].tolist() == [0, 1, 2]


def greedy(points, labels, size):
    """The same choice by plain loops."""
    chosen = []
    for label in sorted(set(labels.tolist())):
        own = [i for i in range(len(points)) if labels[i] == label]
        mean = np.mean(points[own], axis=0)
        chosen.append(min(own, key=lambda i: np.sum((points[i] - mean) ** 2)))
    while len(chosen) < size:
        away = [
            min(np.sum((points[i] - points[j]) ** 2) for j in chosen) for i in range(len(points))
        ]
        chosen.append(
            max((i for i in range(len(points)) if i not in chosen), key=lambda i: away[i])
        )
    return sorted(chosen)


def test_a_coreset_is_that_of_loops():
    rows, labels = draw(n=40)
    for size in (4, 5, 17, 40):
        found = reduction.coreset(rows, labels, size)
        assert found.tolist() == greedy(np.float64(rows), labels, size)
    wide, labels = draw(n=40, d=300)
    found = reduction.coreset(wide, labels, 9, dimensions=20, seed=5)
    points = reduction.random_projection(wide, 20, seed=5)(wide)
    assert found.tolist() == greedy(np.float64(points), labels, 9)


def test_a_coreset_leaves_nothing_far_away_and_no_example_twice():
    rows, labels = draw(n=300, d=3)
    chosen = reduction.coreset(rows, labels, 60)
    drawn = reduction.sample(labels, 60)

    def farthest(kept):
        return np.linalg.norm(rows[:, None] - rows[kept], axis=2).min(axis=1).max()

    assert farthest(chosen) < 0.8 * farthest(drawn)
    equal = np.ones((9, 3), np.float32)
    assert reduction.coreset(equal, np.arange(9) % 2, 7).size == len(set(range(7)))
    assert len(np.unique(reduction.coreset(equal, np.arange(9) % 2, 7))) == 7


def test_wrong_arguments_are_named():
    rows, labels = draw()
    for dimensions in (0, 7):
        with pytest.raises(ValueError, match=f"dimensions: got {dimensions}, wanted 1 to 6, the r"):
            reduction.pca(rows, dimensions)
        with pytest.raises(ValueError, match=f"dimensions: got {dimensions}, wanted 1 to 6, the r"):
            reduction.random_projection(rows, dimensions, seed=0)
    for size in (3, 61):
        with pytest.raises(ValueError, match=rf"size: got {size}, wanted 4 \(the classes\) to 60"):
            reduction.coreset(rows, labels, size)
