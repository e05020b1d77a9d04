"""The nearest-neighbour score: plain loops in float64, blocks, a peer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import openset
from jaxatr.openset import gallery, nearest_neighbour
from jaxatr.openset.nearest_neighbour import NearestNeighbour

SLOW = pytest.mark.slow  # the same on other shapes and types, which are compiled anew


def draw(seed=0, n=60, d=6):
    return np.float32(np.random.default_rng(seed).normal(size=(n, d)) + 1)


def reference(train, queries, k):
    scores = []
    for q in np.float64(queries):
        q = q / np.sqrt(np.sum(q * q))
        distances = []
        for f in np.float64(train):
            f = f / np.sqrt(np.sum(f * f))
            distances.append(np.sqrt(np.sum((f - q) ** 2)))
        scores.append(-sorted(distances)[k - 1])
    return scores


@pytest.mark.parametrize(
    ("k", "block_size"), [(50, 256), *(pytest.param(k, 7, marks=SLOW) for k in (1, 60))]
)
def test_agrees_with_loops(k, block_size):
    train, queries = draw(), draw(1, n=23)
    model = nearest_neighbour.fit(train)
    got = nearest_neighbour.score(model, queries, k=k, block_size=block_size)
    np.testing.assert_allclose(got, reference(train, queries, k), atol=2e-6)


def test_an_example_of_the_training_set_is_its_own_neighbour():
    train = np.float32(np.random.default_rng(0).gamma(1, size=(200, 64)))
    model = nearest_neighbour.fit(train)
    np.testing.assert_allclose(nearest_neighbour.score(model, train, k=1), 0, atol=1e-6)
    np.testing.assert_allclose(
        nearest_neighbour.score(model, train, k=2), reference(train, train, 2), atol=2e-6
    )


def test_length_does_not_count():
    train, queries = draw(), draw(1, n=5)
    stretched = train * np.arange(1, 61)[:, None]
    got = nearest_neighbour.score(nearest_neighbour.fit(stretched), 100 * queries, k=3)
    expected = nearest_neighbour.score(nearest_neighbour.fit(train), queries, k=3)
    np.testing.assert_allclose(got, expected, atol=1e-6)
    for scale in np.float32([1e-25, 1e25]):  # whose squares are 0 or infinite in single precision
        got = nearest_neighbour.score(nearest_neighbour.fit(train), scale * queries, k=3)
        np.testing.assert_allclose(got, expected, atol=1e-6)
        rows = nearest_neighbour.unit(nearest_neighbour.fit(train), scale * queries)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-6)


def test_features_that_are_all_0():
    model = nearest_neighbour.fit(np.concatenate([draw(), np.zeros((1, 6), np.float32)]))
    zero = np.zeros((1, 6), np.float32)
    assert nearest_neighbour.score(model, zero, k=1)[0] == 0
    np.testing.assert_allclose(nearest_neighbour.score(model, zero, k=2), -1, rtol=1e-6)


def test_memory_is_that_of_a_block():
    n, b, block = 2000, 4096, 16
    shapes = [jax.ShapeDtypeStruct(s, np.float32) for s in ((n, 8), (b, 8))]
    last = jax.ShapeDtypeStruct((), np.int32)
    compiled = nearest_neighbour._neighbours.lower(*shapes, last, 5, block).compile()
    # Products and sorted copies of them, and the input once more; never b * n.
    assert compiled.memory_analysis().temp_size_in_bytes < 4 * (8 * block * n + 4 * b * 8)


def test_wrong_arguments_are_named(unchecked):
    model = nearest_neighbour.fit(draw())
    for k in (0, 61):
        with pytest.raises(ValueError, match=f"k: got {k}, wanted 1 to 60"):
            nearest_neighbour.score(model, draw(), k=k)
    with pytest.raises(ValueError, match="block_size: got 0"):
        nearest_neighbour.score(model, draw(), block_size=0)
    with pytest.raises(ValueError, match="features: 60 rows are not finite, the first is 0"):
        nearest_neighbour.fit(draw() * np.nan)


def test_pytorch_ood_agrees(pytorch_ood):
    train, queries = draw(n=300, d=32), draw(1, n=40, d=32)
    peer = pytorch_ood.KNN(None, k=7)
    peer.fit_features(pytorch_ood.tensor(train), pytorch_ood.tensor(np.zeros(300, int)))
    got = nearest_neighbour.score(nearest_neighbour.fit(train), queries, k=7)
    np.testing.assert_allclose(got, -peer.predict_features(pytorch_ood.tensor(queries)), atol=1e-4)


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_kth_largest_is_that_of_a_sort(scale):
    values = np.float32(np.random.default_rng(0).normal(size=40) * scale)
    values[[3, 8, 9]] = values[5]
    values[[0, 1, 2]] = 0.0, -0.0, -values.max()
    find = jax.jit(nearest_neighbour.kth_largest)
    for k in range(1, 41):
        index = int(find(values, k))
        assert values[index] == np.sort(values)[-k]


def test_neighbours_and_class_distances_are_those_of_loops():
    block_size = 3
    examples, queries = draw(2, n=40) + 50, draw(3, n=11) + 50  # far from the origin
    labels = np.random.default_rng(4).integers(0, 4, 40)
    all_distances = np.array(
        [[np.sqrt(np.sum((q - x) ** 2)) for x in np.float64(examples)] for q in np.float64(queries)]
    )
    distances, indices = nearest_neighbour.neighbours(examples, queries, 5, block_size=block_size)
    expected = np.argsort(all_distances, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_allclose(
        distances, np.take_along_axis(all_distances, expected, axis=1), atol=1e-5
    )
    nearest = nearest_neighbour.class_distances(examples, labels, queries, 5, block_size=block_size)
    for label in range(4):
        np.testing.assert_allclose(
            nearest[:, label], all_distances[:, labels == label].min(axis=1), atol=1e-5
        )
    assert np.isinf(nearest[:, 4]).all()  # no example of that class


def test_ties_go_to_the_lower_index():
    examples = np.float32([[1.0], [0.0], [1.0], [0.0]])
    distances, indices = nearest_neighbour.neighbours(examples, np.float32([[0.0]]), 4)
    assert indices.tolist() == [[1, 3, 0, 2]] and distances.tolist() == [[0, 0, 1, 1]]


def test_ties_on_a_grid_are_not_broken_by_rounding():
    rng = np.random.default_rng(4)
    examples, queries = (np.float32(rng.integers(-3, 4, (count, 3))) for count in (23, 40))
    _, indices = nearest_neighbour.neighbours(examples, queries, 23)
    squares = np.square(queries[:, None] - examples).sum(axis=-1)
    np.testing.assert_array_equal(indices, np.argsort(squares, axis=1, kind="stable"))
    labels = np.arange(23) % 2
    distances = np.asarray(nearest_neighbour.class_distances(examples, labels, queries, 2))
    exact = np.stack([squares[:, labels == label].min(axis=1) for label in (0, 1)], axis=1)
    np.testing.assert_array_equal(distances.argmin(axis=1), exact.argmin(axis=1))


@pytest.mark.parametrize("dtype", [jnp.float16, pytest.param(jnp.bfloat16, marks=SLOW)])
def test_half_precision_is_searched_in_single(dtype):
    examples, queries = 60 * draw(n=40, d=64), 60 * draw(1, n=5, d=64)
    examples, queries = jnp.asarray(examples, dtype), jnp.asarray(queries, dtype)
    distances, indices = nearest_neighbour.neighbours(examples, queries, 3)
    wide = [np.asarray(rows, np.float64) for rows in (queries, examples)]
    apart = np.linalg.norm(wide[0][:, None] - wide[1], axis=-1)
    np.testing.assert_array_equal(indices, np.argsort(apart, axis=1)[:, :3])
    np.testing.assert_allclose(distances, np.sort(apart, axis=1)[:, :3], rtol=1e-5)


@pytest.mark.parametrize("setting", [jax.debug_nans, jax.debug_infs])
def test_the_filling_is_no_alarm_of_the_caller_s(setting):
    examples, queries, labels = draw(n=23), draw(1, n=5), np.arange(23) % 2
    score = openset.create("nearest").fit(features=examples)
    wanted = score.score(features=queries)
    with setting(True):
        np.testing.assert_array_equal(score.score(features=queries), wanted)
        assert np.isfinite(nearest_neighbour.class_distances(examples, labels, queries, 2)).all()


def test_searches_refuse_invalid_arguments():
    with pytest.raises(ValueError, match="k: got 5, wanted 1 to 4, the examples"):
        nearest_neighbour.neighbours(draw(n=4), draw(n=1), 5)
    with pytest.raises(ValueError, match="block_size: got 0"):
        nearest_neighbour.neighbours(draw(n=4), draw(n=1), 2, block_size=0)
    with pytest.raises(ValueError, match="block_size: got 0"):
        nearest_neighbour.class_distances(
            draw(n=4), np.zeros(4, np.int32), draw(n=1), 1, block_size=0
        )


def clusters(kind):
    """Returns points whose distances cancel in float32 when they are expanded into products."""
    rng = np.random.default_rng(7)
    if kind == "twins":  # two clouds of pairs, one of them small and far away
        cloud, tight = rng.normal(size=(60, 8)), rng.normal(size=(60, 8)) * 1e-2
        tight[:, 0] += 100
        once = np.concatenate([cloud, tight])
        points = np.concatenate([once, once + rng.normal(size=once.shape) * 1e-3])
    elif kind == "offset":
        points = 1e3 + rng.normal(size=(150, 8)) * np.repeat([1, 1e-2, 1e-3], 50)[:, None]
    elif kind == "duplicates":  # more than are compared one by one, and not finite ones
        points = np.concatenate([rng.normal(size=(40, 8)), np.full((80, 8), 3e2)])[
            rng.permutation(120)
        ]
        points[[5, 50]], points[17, 3] = np.nan, np.inf
    else:  # frames of targets, of unit length
        base = rng.normal(size=(12, 1, 64))
        base /= np.linalg.norm(base, axis=-1, keepdims=True)
        points = base + rng.normal(size=(12, 10, 64)) * 1e-3 / 8
        points = (points / np.linalg.norm(points, axis=-1, keepdims=True)).reshape(-1, 64)
    return points.astype(np.float32)


def by_differences(points, queries):
    apart = np.linalg.norm(queries.astype(np.float64)[:, None] - points.astype(np.float64), axis=-1)
    return np.where(np.isfinite(points).all(axis=1), apart, np.inf)


@pytest.mark.parametrize(
    "kind", ["twins", "duplicates", *(pytest.param(k, marks=SLOW) for k in ("offset", "frames"))]
)
def test_close_examples_are_ranked_by_their_differences(kind):
    points = clusters(kind)
    queries = points[np.isfinite(points).all(axis=1)]
    exact = by_differences(points, queries)
    distances, indices = map(np.asarray, nearest_neighbour.neighbours(points, queries, 5))
    order = np.argsort(exact, axis=1, kind="stable")[:, :5]
    found, wanted = (np.take_along_axis(exact, rows, axis=1) for rows in (indices, order))
    np.testing.assert_allclose(found, wanted, rtol=2e-6)  # single precision of the differences
    np.testing.assert_allclose(distances, wanted, rtol=2e-6)
    assert (np.diff(distances, axis=1) >= 0).all()
    np.testing.assert_array_equal(indices[wanted[:, 4] == 0], order[wanted[:, 4] == 0])

    labels = np.arange(len(points)) % 3
    per_class = nearest_neighbour.class_distances(points, labels, queries, 4, block_size=50)
    wanted = [exact[:, labels == label].min(axis=1, initial=np.inf) for label in range(4)]
    np.testing.assert_allclose(per_class, np.stack(wanted, axis=1), rtol=2e-6)


@pytest.mark.parametrize("k", [3, *(pytest.param(k, marks=SLOW) for k in (1, 12))])
def test_the_kth_distance_of_close_examples(k):
    points = clusters("frames")
    model = nearest_neighbour.fit(points)
    unit = np.asarray(model.features)
    wanted = -np.sort(by_differences(unit, unit), axis=1)[:, k - 1]
    for found in (
        nearest_neighbour.score(model, points, k=k),
        nearest_neighbour.traced_score(model, jnp.asarray(points), k=k),
    ):
        np.testing.assert_allclose(found, wanted, atol=2e-7)


def test_the_kth_distance_to_examples_in_8_bits():
    fitted = nearest_neighbour.fit(draw(n=200, d=24)).features
    bank = gallery.rounded(fitted)
    restored = np.asarray(bank.integers * bank.steps)
    assert np.abs(restored - fitted).max() > 1e-4
    unit = np.concatenate([restored[:5], nearest_neighbour.fit(draw(1, n=40, d=24)).features])
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    apart = np.sort(by_differences(restored, unit), axis=1)
    for k in (1, 7):
        found = nearest_neighbour.traced_score(NearestNeighbour(bank), jnp.asarray(unit), k=k)
        np.testing.assert_allclose(np.square(found), np.square(apart[:, k - 1]), atol=2e-6)


def test_examples_and_queries_that_are_not_finite():
    examples = np.float32([[np.nan], [0], [np.inf], [2]])
    distances, indices = nearest_neighbour.neighbours(examples, np.float32([[3], [np.nan]]), 4)
    assert indices[0].tolist() == [3, 1, 0, 2]
    np.testing.assert_array_equal(distances[0], [1, 3, np.inf, np.inf])
    assert not np.isfinite(distances[1]).any() and np.max(indices[1]) < 4
    classes = np.int32([0, 0, 1, 1])
    found = nearest_neighbour.class_distances(examples, classes, np.float32([[3], [np.nan]]), 2)
    np.testing.assert_array_equal(found, [[3, 1], [np.nan, np.nan]])
