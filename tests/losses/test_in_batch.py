"""Losses over in-batch tuples against hand-derived values, plain loops and other libraries."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import losses
from jaxatr.losses.in_batch import _mean_over_triplets

LABELS = np.array([0, 1, 0, 2, 1, 1, 3, 0, 2])  # the class 3 has one example
WITH_GRADIENT = {
    "every": jax.jit(jax.value_and_grad(losses.semi_hard_triplet)),
    "one": jax.jit(jax.value_and_grad(partial(losses.semi_hard_triplet, negatives="one"))),
    "lifted": jax.jit(jax.value_and_grad(losses.lifted_structure)),
    "n_pairs": jax.jit(jax.value_and_grad(partial(losses.n_pairs, l2_weight=0.1))),
    "global": jax.jit(jax.value_and_grad(losses.triplet_global)),
}

# Compiling single operations takes longer than compiling a small loss at once.
semi_hard = jax.jit(losses.semi_hard_triplet, static_argnames=("margin", "negatives", "squared"))
lifted = jax.jit(losses.lifted_structure, static_argnames="margin")
n_pairs = jax.jit(losses.n_pairs, static_argnames="l2_weight")


def draw(seed, b=9, d=4):
    points = np.random.default_rng(seed).normal(size=(b, d))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def squared(x, y):
    return sum((p - q) ** 2 for p, q in zip(x, y, strict=True))


def triplets(labels):
    everyone = range(len(labels))
    return [
        (a, p, n)
        for a in everyone
        for p in everyone
        for n in everyone
        if a != p and labels[a] == labels[p] and labels[a] != labels[n]
    ]


def loop_every(points, labels, margin=0.2):
    violations = []
    for a, p, n in triplets(labels):
        near, far = squared(points[a], points[p]), squared(points[a], points[n])
        if near < far < near + margin:
            violations.append(near - far + margin)
    return np.mean(violations) if violations else 0.0


def loop_one(points, labels, margin=0.2):
    values = []
    for a, p in {(a, p) for a, p, _ in triplets(labels)}:
        near = squared(points[a], points[p])
        far = [squared(points[a], x) for x, y in zip(points, labels, strict=True) if y != labels[a]]
        farther = [distance for distance in far if distance > near]
        values.append(max(near - (min(farther) if farther else max(far)) + margin, 0))
    return np.mean(values) if values else 0.0


def loop_lifted(points, labels, margin=1.0):
    values, everyone = [], range(len(labels))
    for i in everyone:
        for j in range(i):
            if labels[i] != labels[j]:
                continue
            push = sum(
                np.exp(margin - squared(points[end], points[k]) ** 0.5)
                for end in (i, j)
                for k in everyone
                if labels[k] != labels[i]
            )
            if push:
                values.append(max(squared(points[i], points[j]) ** 0.5 + np.log(push), 0) ** 2 / 2)
    return np.mean(values) if values else 0.0


def loop_n_pairs(points, labels, l2_weight=0.1):
    pairs = []
    for label in sorted(set(labels)):
        first = [x for x, y in zip(points, labels, strict=True) if y == label][:2]
        if len(first) == 2:
            pairs.append(first)
    values, lengths = [], []
    for i, (anchor, positive) in enumerate(pairs):
        others = [
            anchor @ other - anchor @ positive for j, (_, other) in enumerate(pairs) if j != i
        ]
        values.append(np.log(1 + sum(np.exp(others))))
        lengths += [anchor @ anchor, positive @ positive]
    return np.mean(values) + l2_weight * np.mean(lengths) if pairs else 0.0


def loop_global(points, labels, margin=0.01, global_margin=0.4, weight=0.8):
    ratios = []
    for a, p, n in triplets(labels):
        near, far = squared(points[a], points[p]) ** 0.5, squared(points[a], points[n]) ** 0.5
        ratios.append(max(1 - far / (near + margin), 0))
    if not ratios:
        return 0.0
    pairs = [(i, j) for i in range(len(labels)) for j in range(i)]
    same = [squared(points[i], points[j]) / 4 for i, j in pairs if labels[i] == labels[j]]
    different = [squared(points[i], points[j]) / 4 for i, j in pairs if labels[i] != labels[j]]
    apart = max(np.mean(same) - np.mean(different) + global_margin, 0)
    return np.mean(ratios) + np.var(same) + np.var(different) + weight * apart


LOOPS = {
    "every": loop_every,
    "one": loop_one,
    "lifted": loop_lifted,
    "n_pairs": loop_n_pairs,
    "global": loop_global,
}

# Two of class 0 at 0 and 1, one of class 1 at 3: distances 1 within, 3 and 2 between.
LINE, TWO_CLASSES = jnp.array([[0.0], [1.0], [3.0]]), jnp.array([0, 0, 1])


def test_semi_hard_hand_derived():
    # Anchor 0: 1² - 3² + 5 < 0, not within the margin. Anchor 1: 1² - 2² + 5 = 2.
    assert semi_hard(LINE, TWO_CLASSES, margin=5.0) == 2.0
    # Every pair has its one negative: [1 - 9 + 5]+ = 0 and 2.
    assert semi_hard(LINE, TWO_CLASSES, margin=5.0, negatives="one") == 1.0
    # Not squared: 1 - 3 + 1.5 < 0 and 1 - 2 + 1.5.
    assert semi_hard(LINE, TWO_CLASSES, margin=1.5, squared=False) == 0.5


def test_one_negative_falls_back_to_the_farthest():
    # The positive, at 4, is farther than both negatives: the one at 3 is taken, not the one at 2.
    points, labels = jnp.array([[0.0], [4.0], [2.0], [3.0]]), jnp.array([0, 0, 1, 2])
    # Anchor 0: 16 - 9 + 1 = 8. Anchor 4: 16 - 4 + 1 = 13 (its negatives are 2 and 1 away).
    assert semi_hard(points, labels, margin=1.0, negatives="one") == 10.5
    assert semi_hard(points, labels, margin=1.0) == 0.0


def test_lifted_structure_hand_derived():
    # J = 1 + log(e^(1 - 3) + e^(1 - 2)), one positive pair.
    expected = (1 + np.log(np.exp(-2) + np.exp(-1))) ** 2 / 2
    np.testing.assert_allclose(lifted(LINE, TWO_CLASSES), expected, rtol=1e-5)


def test_n_pairs_hand_derived():
    # Pairs (1, 2) and (3, 1); the third example of class 0 takes no part.
    # Class 0: 1·2 = 2 against 1·1 = 1. Class 1: 3·1 = 3 against 3·2 = 6.
    points, labels = jnp.array([[1.0], [3.0], [2.0], [1.0], [9.0]]), jnp.array([0, 5, 0, 5, 0])
    expected = (np.log(1 + np.exp(-1)) + np.log(1 + np.exp(3))) / 2
    np.testing.assert_allclose(n_pairs(points, labels), expected, rtol=1e-6)
    # Squared lengths 1, 4, 9, 1: their mean is 3.75.
    value = n_pairs(points, labels, l2_weight=2.0)
    np.testing.assert_allclose(value, expected + 7.5, rtol=1e-6)


def test_triplet_global_hand_derived():
    # Ratios: [1 - 3 / 2]+ = 0 and 1 - 2 / 2 = 0 with margin 1; with margin 3, 1/4 and 1/2.
    # D²/4: 0.25 within; 2.25 and 1 between, mean 1.625, variance 0.625².
    # Hinge with margin 2: 0.25 - 1.625 + 2 = 0.625.
    constants = {"margin": 3.0, "global_margin": 2.0, "global_weight": 4.0, "triplet_weight": 2.0}
    value = jax.jit(partial(losses.triplet_global, **constants))(LINE, TWO_CLASSES)
    np.testing.assert_allclose(value, 2 * 0.375 + 0.625**2 + 4 * 0.625, rtol=1e-6)


@pytest.mark.parametrize("name", LOOPS)
def test_agrees_with_plain_loops(name):
    for seed in range(4):
        points = draw(seed)
        value, _ = WITH_GRADIENT[name](jnp.float32(points), LABELS)
        np.testing.assert_allclose(value, LOOPS[name](points, LABELS), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", LOOPS)
def test_gradient_agrees_with_finite_differences(name):
    # Not unit vectors: the direction away from the origin counts as well.
    points = draw(6) * np.linspace(0.8, 1.2, 9)[:, None]
    _, gradient = WITH_GRADIENT[name](jnp.float32(points), LABELS)
    direction, step = np.random.default_rng(6).normal(size=points.shape), 1e-6
    ahead, behind = (LOOPS[name](points + sign * step * direction, LABELS) for sign in (1, -1))
    along = np.sum(np.float64(gradient) * direction)
    np.testing.assert_allclose(along, (ahead - behind) / (2 * step), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize(
    "labels", [np.zeros(9, int), np.arange(9)], ids=["one class", "no positives"]
)
def test_a_batch_without_tuples(name, labels):
    points = draw(7)
    value, gradient = WITH_GRADIENT[name](jnp.float32(points), labels)
    np.testing.assert_allclose(value, LOOPS[name](points, labels), atol=1e-6)
    if name != "n_pairs":  # of one class it is log 1, and lengths have a gradient
        assert value == 0
        np.testing.assert_array_equal(gradient, 0)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("name", LOOPS)
def test_points_that_coincide(name):
    points = draw(8)
    points[2], points[4] = points[0], points[3]  # of one class, of two
    for array in (points, np.ones_like(points)):
        value, gradient = WITH_GRADIENT[name](jnp.float32(array), LABELS)
        assert np.isfinite(value) and np.isfinite(gradient).all()


@pytest.mark.slow
def test_more_triplets_than_an_int32_counts():
    size = 1300  # 1300³ > 2³¹
    every = jnp.ones((size, size), bool)

    def term(near, far):
        return near + far, True

    mean = jax.jit(partial(_mean_over_triplets, term))(jnp.ones((size, size)), every, every)
    np.testing.assert_allclose(mean, 2, rtol=1e-6)


def test_wrong_arguments_are_named(unchecked):
    points = jnp.zeros((2, 3))
    with pytest.raises(ValueError, match="negatives: got 'hard', wanted 'every' or 'one'"):
        losses.semi_hard_triplet(points, jnp.zeros(2, int), negatives="hard")
    for loss in (losses.lifted_structure, losses.n_pairs, losses.triplet_global):
        with pytest.raises(AssertionError, match="type float32 but expected"):
            loss(points, jnp.zeros(2))
        with pytest.raises(AssertionError, match=r"has shape \(3,\) but expected \(2,?\)"):
            loss(points, jnp.zeros(3, int))


@pytest.fixture
def peer():
    return pytest.importorskip("pytorch_metric_learning")


def in_torch(array):
    import torch

    return torch.tensor(array)


@pytest.mark.parametrize("power", [1, 2])
def test_semi_hard_triplet_is_pytorch_metric_learnings(peer, power):
    from pytorch_metric_learning import distances, miners
    from pytorch_metric_learning import losses as theirs

    points = np.float32(draw(10))
    distance = distances.LpDistance(power=power, normalize_embeddings=False)
    miner = miners.TripletMarginMiner(0.3, "semihard", distance=distance)
    loss = theirs.TripletMarginLoss(0.3, distance=distance)
    expected = loss(in_torch(points), in_torch(LABELS), miner(in_torch(points), in_torch(LABELS)))
    value = semi_hard(points, LABELS, margin=0.3, squared=power == 2)
    np.testing.assert_allclose(value, expected.item(), rtol=1e-5)


def test_lifted_structure_is_pytorch_metric_learnings(peer):
    from pytorch_metric_learning import distances
    from pytorch_metric_learning import losses as theirs

    points = np.float32(draw(11) * 2)
    distance = distances.LpDistance(normalize_embeddings=False)
    expected = theirs.LiftedStructureLoss(neg_margin=0.7, distance=distance)
    value = lifted(points, LABELS, margin=0.7)
    expected = expected(in_torch(points), in_torch(LABELS)).item()
    np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_n_pairs_is_pytorch_metric_learnings(peer):
    from pytorch_metric_learning import distances
    from pytorch_metric_learning import losses as theirs

    points = np.float32(draw(12) * 2)
    loss = theirs.NPairsLoss(distance=distances.DotProductSimilarity(normalize_embeddings=False))
    expected = loss(in_torch(points), in_torch(LABELS)).item()
    np.testing.assert_allclose(n_pairs(points, LABELS), expected, rtol=1e-5)


def test_triplet_is_pytorch_metric_learnings(peer):
    from pytorch_metric_learning import distances, reducers
    from pytorch_metric_learning import losses as theirs

    points, chosen = np.float32(draw(13)), np.array(triplets(LABELS)).T
    distance = distances.LpDistance(power=2, normalize_embeddings=False)
    loss = theirs.TripletMarginLoss(0.2, distance=distance, reducer=reducers.MeanReducer())
    indices = tuple(in_torch(column) for column in chosen)
    expected = loss(in_torch(points), in_torch(LABELS), indices).item()
    each = losses.triplet(*(points[column] for column in chosen))
    np.testing.assert_allclose(each.mean(), expected, rtol=1e-5)
