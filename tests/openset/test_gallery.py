"""Galleries, searched against loops and an exact search; cells and windows of maps."""

from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from jaxatr.openset import gallery, nearest_neighbour
from jaxatr.openset.detectors import knn
from jaxatr.openset.gallery import maps, search


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
    assert len(built.examples) == 79  # a row without a direction is left out
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


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_vectors_may_have_any_length(scale):
    rows, labels = draw()
    queries, _ = draw(1, n=5)
    expected = gallery.cosines(gallery.directions(rows, labels, 4), queries, 4)
    built = gallery.directions(rows * np.float32(scale), labels, 4)
    np.testing.assert_allclose(gallery.cosines(built, queries, 4), expected, atol=1e-3)
    stretched = queries * np.float32(scale)
    np.testing.assert_allclose(gallery.cosines(built, stretched, 4), expected, atol=1e-3)


def test_memory_is_that_of_a_class_and_a_block():
    n, d, block = 4000, 64, 16
    structs = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((n, d), (n,), (block, 1, d))]
    compiled = search._exhaustive.lower(*structs, ends=tuple(range(0, n + 1, 500))).compile()
    most = 8 * 4 * 500 * (d + 2 * block)  # of all eight classes at once, at the most
    assert compiled.memory_analysis().temp_size_in_bytes < most


def test_a_block_of_any_size_is_one_of_few():
    rows, labels = draw()
    built = gallery.build(rows, labels, 4)
    before = search._exhaustive._cache_size()
    for count in (0, 1, 5, 6, 7, 8):
        assert gallery.class_distances(built, rows[:count], 4, block_size=8).shape == (count, 4)
    assert search._exhaustive._cache_size() <= before + 2


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


def test_wrong_arguments_are_named(unchecked):
    rows, labels = draw()
    for bad in (rows * np.nan, rows * 1e9, rows[:0]):
        with pytest.raises(ValueError, match="examples: got none, or one beyond the range"):
            gallery.build(bad, labels[: len(bad)], 4)
    with pytest.raises(ValueError, match="labels: got class 1 only, wanted two or more"):
        gallery.build(rows, np.ones(60, int), 4)
    with pytest.raises(ValueError, match="labels: got 3 at"):
        gallery.build(rows, labels, 3)
    built = gallery.build(rows, labels, 4)
    with pytest.raises(ValueError, match="block_size: got 0, wanted at least 1"):
        gallery.class_distances(built, rows, 4, block_size=0)


def test_cells_and_windows():
    images = np.arange(2 * 5 * 7 * 3).reshape(2, 5, 7, 3).astype(np.uint8)
    pooled = maps.mean_pool(images, 2)
    assert pooled.shape == (2, 2, 3, 3) and pooled.dtype == np.float32
    for i, j in np.ndindex(2, 3):
        cell = images[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        np.testing.assert_array_equal(pooled[:, i, j], cell.mean(axis=(1, 2)))
    np.testing.assert_array_equal(maps.mean_pool(images, 1), images)
    traced = jax.jit(lambda one: (maps.mean_pool(one, 2), maps.gray(one)))(images)
    np.testing.assert_allclose(traced[0], pooled, rtol=1e-6)
    gray = maps.gray(images)
    np.testing.assert_allclose(gray[..., 0], images.mean(axis=-1), rtol=1e-6)
    np.testing.assert_allclose(traced[1], gray, rtol=1e-6)
    assert gray.dtype == np.float32
    np.testing.assert_array_equal(maps.central(images, 0.6), images[:, 1:4, 1:5])
    np.testing.assert_array_equal(maps.central(images, 1.0), images)
    assert maps.central(images, 0.01).shape == (2, 1, 1, 3)
    for window in (0.0, 1.1):
        with pytest.raises(ValueError, match=f"window: got {window}, wanted a share in"):
            maps.central(images, window)
    for factor in (0, 6):
        with pytest.raises(ValueError, match=f"factor: got {factor}, wanted 1 to 5, the smaller"):
            maps.mean_pool(images, factor)


def test_products_of_numpy_s_arrays_and_of_traced_ones():
    (rows, _), (others, _) = draw(), draw(1, n=9)
    found = gallery.dot(rows, others)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, np.float64(rows) @ np.float64(others).T, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(jax.jit(gallery.dot)(rows, others), found)


def test_the_searched_examples_of_a_ready_model_are_on_the_device():
    (rows, labels), (queries, _) = draw(n=300), draw(1, n=70)
    model = knn.fit(rows, labels)
    placed = gallery.ready(model)
    assert isinstance(model.features, np.ndarray) and isinstance(placed.features, jax.Array)
    assert gallery.ready(placed).features is placed.features
    found = knn.score(placed, queries)
    np.testing.assert_array_equal(found, knn.score(model, queries))
    unit = [np.float64(one) / np.linalg.norm(one, axis=1, keepdims=True) for one in (rows, queries)]
    apart = np.sort(np.linalg.norm(unit[1][:, None] - unit[0], axis=2), axis=1)
    np.testing.assert_allclose(found, -apart[:, int(model.k) - 1], rtol=1e-5)
    assert knn.score(model, queries[:0]).shape == (0,)


@pytest.mark.parametrize(("count", "width"), [(60, 3), (4200, 130)])  # whole, and in two stages
def test_room_changes_no_distance_and_no_shape(count, width):
    class Model(NamedTuple):
        examples: Any
        half_squares: Any
        labels: Any
        classes: Any
        index: Any = None

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(count, width)).astype(np.float32)
    labels = rng.choice([0, 1, 4], count)  # no examples of 2 and 3
    queries = rng.normal(size=(5, width)).astype(np.float32)

    def searched(model, classes, room):
        ready = gallery.ready(model, room=room)
        return ready, gallery.class_distances(gallery.of(ready), queries, classes)

    model = Model(*gallery.build(rows, labels, 5)[:3], np.array(5))
    more = queries[:2] + 0.1, np.array([5, 6])
    added = gallery.with_examples(model, *more, 7)
    shapes = set()
    for one, classes in ((model, 5), (added, 7)):
        ready, found = searched(one, classes, True)
        shapes.add(tuple(np.shape(leaf) for leaf in jax.tree.leaves(ready)))
        _, wanted = searched(one, classes, False)
        assert found.shape == (5, classes)
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert len(shapes) == 1
    assert found[0].argmin() == 5 and found[1].argmin() == 6

    ready = gallery.ready(added, room=True)
    hidden = gallery.without_examples(ready, *more, np.array([1]))
    both = [gallery.class_distances(gallery.of(one), queries, 7) for one in (hidden, ready)]
    assert np.isinf(both[0][:, 6]).all()
    np.testing.assert_array_equal(both[0][:, :5], both[1][:, :5])
