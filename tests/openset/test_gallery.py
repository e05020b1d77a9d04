"""Galleries: searched against loops and the exact search, projected, and thinned out."""

import jax
import numpy as np
import pytest

from jaxatr.openset import gallery, maps, nearest_neighbour


def draw(seed=0, n=60, d=6, classes=4):
    rng = np.random.default_rng(seed)
    return np.float32(rng.normal(size=(n, d))), rng.integers(0, classes, n)


def halves(rows):
    return np.float64(rows.astype(np.float16))


@pytest.mark.parametrize("block_size", [7, 256])
def test_distances_are_those_of_loops(block_size):
    rows, labels = draw()
    queries, _ = draw(1, n=23)
    built = gallery.build(rows, labels, 5)
    assert built.examples.dtype == np.float16 and (np.diff(built.labels) >= 0).all()
    found = gallery.class_distances(built, queries, 5, block_size=block_size)
    for q, row in zip(np.float64(queries), np.asarray(found), strict=True):
        for label in range(4):
            own = halves(rows[labels == label])
            expected = min(np.sqrt(np.sum((q - e) ** 2)) for e in own)
            np.testing.assert_allclose(row[label], expected, rtol=1e-4)
    assert np.isinf(found[:, 4]).all()  # no example of that class
    exact = nearest_neighbour.class_distances(np.float32(halves(rows)), labels, queries, 5)
    np.testing.assert_allclose(found, exact, rtol=1e-4)


def test_cosines_are_those_of_loops():
    rows, labels = draw(n=80, d=200)
    queries, _ = draw(1, n=9, d=200)
    rows[0], queries[0] = 0, 0
    built = gallery.directions(1e3 * rows, labels, 5)
    assert len(built.examples) == 79  # what has no direction is left out
    found = gallery.cosines(built, queries, 5)
    for q, row in zip(np.float64(queries), found, strict=True):
        for label in range(4):
            own = [e for e in rows[labels == label] if e.any()]
            lengths = [np.linalg.norm(q) * np.linalg.norm(e) or 1 for e in own]
            expected = max(q @ e / length for e, length in zip(own, lengths, strict=True))
            np.testing.assert_allclose(row[label], expected, atol=2e-4)
    assert np.abs(found[0, :4]).max() < 2e-4 and (found[:, 4] == -np.inf).all()
    itself = gallery.cosines(built, 7 * rows[1:2], 5)[0, labels[1]]
    np.testing.assert_allclose(itself, 1, atol=1e-4)


def test_memory_is_that_of_a_class_and_a_block():
    n, d, block = 4000, 64, 16
    structs = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((n, d), (n,), (block, 1, d))]
    compiled = gallery._whole.lower(*structs, ends=tuple(range(0, n + 1, 500))).compile()
    most = 8 * 4 * 500 * (d + 2 * block)  # of all eight classes at once, at the most
    assert compiled.memory_analysis().temp_size_in_bytes < most


def test_a_block_of_any_size_is_one_of_few():
    rows, labels = draw()
    built = gallery.build(rows, labels, 4)
    before = gallery._whole._cache_size()
    for count in (0, 1, 5, 6, 7, 8):
        assert gallery.class_distances(built, rows[:count], 4, block_size=8).shape == (count, 4)
    assert gallery._whole._cache_size() <= before + 2


def test_a_gallery_on_the_device_gives_the_same():
    rows, labels = np.random.default_rng(4).normal(size=(30, 7)), np.arange(30) % 3
    kept = gallery.build(rows, labels, 3)
    ready = gallery.ready(kept)
    assert isinstance(ready.examples, jax.Array) and gallery.ready(None) is None
    assert ready.examples.dtype == np.float32 and ready.labels is kept.labels
    np.testing.assert_array_equal(ready.examples, np.float32(kept.examples))
    found = gallery.class_distances(ready, rows[:5], 3)
    np.testing.assert_array_equal(found, gallery.class_distances(kept, rows[:5], 3))


def test_two_nearest():
    first, second = gallery.two_nearest(np.array([[3.0, 1.0, 2.0], [0.0, 0.0, np.inf]]))
    assert first.tolist() == [1, 0] and second.tolist() == [2, 0]


def test_principal_directions_are_those_of_scikit_learn():
    from sklearn.decomposition import PCA

    rows = draw(n=200, d=7)[0] * np.arange(1, 8) + 5
    projection = gallery.pca(rows, 3)
    peer = PCA(3).fit(np.float64(rows))
    got, expected = projection(rows), peer.transform(np.float64(rows))
    np.testing.assert_allclose(np.abs(got), np.abs(expected), atol=1e-3)
    np.testing.assert_allclose(projection(rows.reshape(2, 100, 7)).reshape(-1, 3), got, rtol=1e-6)


def test_random_directions_keep_distances():
    rows, _ = draw(n=40, d=2000)
    projection = gallery.random_projection(rows, 500, seed=3)
    short = projection(rows)
    ratios = np.linalg.norm(short[1:] - short[0], axis=1)
    ratios /= np.linalg.norm(rows[1:] - rows[0], axis=1)
    assert abs(ratios.mean() - 1) < 0.03 and ratios.std() < 0.06  # 1 / sqrt(2 * 500) is .03
    again = gallery.random_projection(rows, 500, seed=3)
    np.testing.assert_array_equal(projection.axes, again.axes)


def test_a_sample_is_even_over_the_classes():
    labels = np.array([0] * 100 + [1] * 20 + [2] * 3)
    kept = gallery.sample(labels, 33)
    assert np.bincount(labels[kept]).tolist() == [15, 15, 3]
    assert (np.diff(kept) > 0).all() and np.array_equal(kept, gallery.sample(labels, 33))
    assert not np.array_equal(kept, gallery.sample(labels, 33, seed=1))
    assert gallery.sample(labels, 200).tolist() == list(range(123))
    assert labels[gallery.sample(labels, 1)].tolist() == [0, 1, 2]


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
        found = gallery.coreset(rows, labels, size)
        assert found.tolist() == greedy(np.float64(rows), labels, size)
    wide, labels = draw(n=40, d=300)
    found = gallery.coreset(wide, labels, 9, dimensions=20, seed=5)
    points = gallery.random_projection(wide, 20, seed=5)(wide)
    assert found.tolist() == greedy(np.float64(points), labels, 9)


def test_a_coreset_leaves_nothing_far_away_and_no_example_twice():
    rows, labels = draw(n=300, d=3)
    chosen = gallery.coreset(rows, labels, 60)
    drawn = gallery.sample(labels, 60)

    def farthest(kept):
        return np.linalg.norm(rows[:, None] - rows[kept], axis=2).min(axis=1).max()

    assert farthest(chosen) < 0.8 * farthest(drawn)
    equal = np.ones((9, 3), np.float32)
    assert gallery.coreset(equal, np.arange(9) % 2, 7).size == len(set(range(7)))
    assert len(np.unique(gallery.coreset(equal, np.arange(9) % 2, 7))) == 7


def test_wrong_arguments_are_named(unchecked):
    rows, labels = draw()
    for bad in (rows * np.nan, rows * 1e9, rows[:0]):
        with pytest.raises(ValueError, match="examples: got none, or one that float16 cannot hold"):
            gallery.build(bad, labels[: len(bad)], 4)
    with pytest.raises(ValueError, match="labels: got class 1 only, wanted two or more"):
        gallery.build(rows, np.ones(60, int), 4)
    with pytest.raises(ValueError, match="labels: got 3 at"):
        gallery.build(rows, labels, 3)
    built = gallery.build(rows, labels, 4)
    with pytest.raises(ValueError, match="block_size: got 0, wanted at least 1"):
        gallery.class_distances(built, rows, 4, block_size=0)
    for dimensions in (0, 7):
        with pytest.raises(ValueError, match=f"dimensions: got {dimensions}, wanted 1 to 6, the r"):
            gallery.pca(rows, dimensions)
        with pytest.raises(ValueError, match=f"dimensions: got {dimensions}, wanted 1 to 6, the r"):
            gallery.random_projection(rows, dimensions, seed=0)
    for size in (3, 61):
        with pytest.raises(ValueError, match=f"size: got {size}, wanted 4, the classes, to 60"):
            gallery.coreset(rows, labels, size)


def test_cells_and_windows():
    images = np.arange(2 * 5 * 7 * 3).reshape(2, 5, 7, 3).astype(np.uint8)
    pooled = maps.mean_pool(images, 2)
    assert pooled.shape == (2, 2, 3, 3) and pooled.dtype == np.float32
    for i, j in np.ndindex(2, 3):
        cell = images[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        np.testing.assert_array_equal(pooled[:, i, j], cell.mean(axis=(1, 2)))
    np.testing.assert_array_equal(maps.mean_pool(images, 1), images)
    np.testing.assert_array_equal(maps.central(images, 0.6), images[:, 1:4, 1:5])
    np.testing.assert_array_equal(maps.central(images, 1.0), images)
    assert maps.central(images, 0.01).shape == (2, 1, 1, 3)
    for window in (0.0, 1.1):
        with pytest.raises(ValueError, match=f"window: got {window}, wanted a share in"):
            maps.central(images, window)
    for factor in (0, 6):
        with pytest.raises(ValueError, match=f"factor: got {factor}, wanted 1 to 5, the smaller"):
            maps.mean_pool(images, factor)
