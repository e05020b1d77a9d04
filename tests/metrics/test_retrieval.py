import numpy as np
import pytest
from sklearn.metrics import normalized_mutual_info_score

from jaxatr import metrics


def a_set(n=80, dimensions=2, classes=7, seed=0):
    """Integer embeddings, for exact distances with many ties."""
    draw = np.random.default_rng(seed)
    return draw.integers(-4, 5, (n, dimensions)).astype(float), draw.integers(0, classes, n)


def neighbours(embeddings, query):
    """Sorts all other examples by distance, then index, with a stable sort."""
    distances = [np.sum((embeddings[query] - other) ** 2) for other in embeddings]
    order = sorted(range(len(embeddings)), key=lambda i: (distances[i], i))
    return [i for i in order if i != query]


@pytest.mark.parametrize("block_size", [7, 1024])
@pytest.mark.parametrize("seed", [0, 1])
def test_recall_is_that_of_plain_loops(block_size, seed):
    embeddings, labels = a_set(seed=seed)
    expected = {
        k: np.mean(
            [
                any(labels[i] == labels[q] for i in neighbours(embeddings, q)[:k])
                for q in range(len(labels))
            ]
        )
        for k in (1, 2, 5, 90)
    }
    found = metrics.recall_at_k(embeddings, labels, (1, 2, 5, 90), block_size=block_size)
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("block_size", [7, 1024])
def test_map_is_that_of_plain_loops(block_size):
    embeddings, labels = a_set()
    labels[3] = 99  # alone, so left out
    values = []
    for query in range(len(labels)):
        r = np.sum(labels == labels[query]) - 1
        if r:
            right = [labels[i] == labels[query] for i in neighbours(embeddings, query)[:r]]
            values.append(sum(np.mean(right[: i + 1]) for i in range(r) if right[i]) / r)
    found = metrics.map_at_r(embeddings, labels, block_size=block_size)
    assert found == pytest.approx(np.mean(values), abs=1e-6)


def test_a_query_alone_in_its_class_is_missed():
    found = metrics.recall_at_k([[0.0], [1.0], [1.1]], [0, 1, 1], (1, 3, 8))
    assert found == {1: 2 / 3, 3: 2 / 3, 8: 2 / 3}


def test_of_equal_distances_the_lower_index_is_nearer():
    points, labels = [[0.0], [1.0], [-1.0]], [0, 1, 0]
    assert metrics.recall_at_k(points, labels, (1,))[1] == pytest.approx(1 / 3)
    assert metrics.recall_at_k(points[::-1], labels[::-1], (1,))[1] == pytest.approx(2 / 3)


def test_a_far_away_origin_does_not_blur_distances():
    embeddings, labels = a_set(dimensions=3)
    near = metrics.recall_at_k(embeddings / 64, labels)
    assert metrics.recall_at_k(embeddings / 64 + 1024, labels) == near


@pytest.mark.parametrize("exponent", [-120, -80, 70, 120])
def test_the_scale_of_embeddings_does_not_matter(exponent):
    embeddings, labels = a_set()
    scaled = np.ldexp(embeddings, exponent)
    assert metrics.recall_at_k(scaled, labels) == metrics.recall_at_k(embeddings, labels)
    assert metrics.map_at_r(scaled, labels) == metrics.map_at_r(embeddings, labels)
    assert metrics.nmi(scaled, labels) == metrics.nmi(embeddings, labels)


def test_nmi_of_well_separated_clusters():
    draw = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2, 3], 20)
    embeddings = 100 * np.eye(4)[labels] + draw.normal(size=(80, 4))
    assert metrics.nmi(embeddings, labels) == pytest.approx(1)
    halves = labels // 2  # two classes of two clusters each: I = log 2, H = log 2 and log 4
    assert metrics.nmi(embeddings, halves, clusters=4) == pytest.approx(2 / 3)
    assert metrics.nmi(embeddings, labels, seed=3) == metrics.nmi(embeddings, labels, seed=3)
    mixed = normalized_mutual_info_score(labels, draw.permutation(labels))
    assert metrics.nmi(draw.normal(size=(80, 4)), labels) < mixed + 0.3


@pytest.mark.parametrize("measure", [metrics.recall_at_k, metrics.map_at_r, metrics.nmi])
@pytest.mark.parametrize(
    ("embeddings", "labels", "message"),
    [
        ([[1.0]], [0], r"embeddings: got shape \(1, 1\), wanted \[n, d\] with n > 1"),
        ([[1.0], [np.nan]], [0, 0], "embeddings: 1 are not finite, the first is 1"),
    ],
)
def test_bad_input_is_named(measure, embeddings, labels, message):
    with pytest.raises(ValueError, match=message):
        measure(embeddings, labels)


@pytest.mark.parametrize("measure", [metrics.recall_at_k, metrics.map_at_r, metrics.nmi])
def test_a_label_too_many_is_a_callers_mistake(measure):
    with pytest.raises(AssertionError, match=r"has shape \(3,\) but expected \(2\)"):
        measure([[1.0], [2.0]], [0, 0, 0])


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="ks: got 0, wanted at least 1"):
        metrics.recall_at_k([[0.0], [1.0]], [0, 0], (1, 0))
    with pytest.raises(ValueError, match="no class has two members"):
        metrics.map_at_r([[0.0], [1.0]], [0, 1])
    with pytest.raises(ValueError, match="clusters: got 3, wanted 1 to 2"):
        metrics.nmi([[0.0], [1.0]], [0, 1], clusters=3)


def test_close_examples_are_ranked_by_their_differences():
    rng = np.random.default_rng(0)
    cloud, tight = rng.normal(size=(60, 8)), rng.normal(size=(60, 8)) * 1e-2
    tight[:, 0] += 100
    once = np.concatenate([cloud, tight])
    points = np.concatenate([once, once + rng.normal(size=once.shape) * 1e-3]).astype(np.float32)
    labels = np.tile(np.arange(120) // 2, 2)
    exact = points.astype(np.float64)
    apart = np.linalg.norm(exact[:, None] - exact, axis=-1)
    np.fill_diagonal(apart, np.inf)
    hits = labels[np.argsort(apart, axis=1)] == labels[:, None]
    wanted = {k: hits[:, :k].any(axis=1).mean() for k in (1, 2, 4)}
    assert metrics.recall_at_k(points, labels, wanted) == pytest.approx(wanted)
    three = hits[:, :3]
    precision = np.cumsum(three, axis=1) / np.arange(1, 4) * three
    assert metrics.map_at_r(points, labels) == pytest.approx(precision.sum(axis=1).mean() / 3)


@pytest.mark.parametrize("scale", [2.0**-200, 2.0**200])
def test_embeddings_in_double_precision_have_any_scale(scale):
    embeddings = np.array([[0.0], [1.0], [1.5], [9.0]]) * scale
    assert metrics.recall_at_k(embeddings, [0, 0, 1, 1], ks=(1, 2)) == {1: 0.5, 2: 0.75}
    assert metrics.map_at_r(embeddings, [0, 0, 1, 1]) == 0.5
