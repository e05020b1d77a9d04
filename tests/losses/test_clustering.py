"""Facility-location clustering against hand-derived values, plain loops and scikit-learn's NMI."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import normalized_mutual_info_score

from jaxatr import losses

LABELS = np.array([0, 1, 0, 2, 1, 1, 3, 0, 2, 2])
WITH_GRADIENT = jax.jit(jax.value_and_grad(losses.clustering), static_argnames="refinements")


def with_gradient(points, labels, multiplier=1.0, refinements=5):
    return WITH_GRADIENT(
        jnp.float32(points),
        labels,
        margin_multiplier=jnp.float32(multiplier),
        refinements=refinements,
    )


def draw(seed, b=10, d=3):
    points = np.random.default_rng(seed).normal(size=(b, d))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def assign(distances, medoids):
    """Assigns clusters: a medoid to its own, others to the nearest medoid, ties to the first."""
    clusters = []
    for i in range(len(distances)):
        nearest = min(range(len(medoids)), key=lambda slot: distances[medoids[slot]][i])
        clusters.append(medoids.index(i) if i in medoids else nearest)
    return clusters


def structured(distances, labels, medoids, multiplier):
    clusters = assign(distances, medoids)
    nmi = normalized_mutual_info_score(labels, clusters, average_method="geometric")
    return multiplier * (1 - nmi)


def energy(distances, medoids):
    return -sum(min(distances[j][i] for j in medoids) for i in range(len(distances)))


def loop_clustering(points, labels, multiplier=1.0, refinements=5):
    everyone = range(len(points))
    distances = [[sum((p - q) ** 2) ** 0.5 for q in points] for p in points]

    def greedy_score(medoids):
        return energy(distances, medoids) + structured(distances, labels, medoids, multiplier)

    medoids = []
    for _ in set(labels):
        rest = [i for i in everyone if i not in medoids]
        medoids.append(max(rest, key=lambda i: greedy_score([*medoids, i])))
    for _ in range(refinements):
        clusters = assign(distances, medoids)
        for slot in range(len(medoids)):
            members = [i for i in everyone if clusters[i] == slot]

            def score(candidate, slot=slot, members=members):
                tried = [*medoids[:slot], candidate, *medoids[slot + 1 :]]
                within = -sum(distances[candidate][i] for i in members)
                return within + structured(distances, labels, tried, multiplier)

            medoids[slot] = max(members, key=score)
    truth = 0.0
    for label in set(labels):
        members = [i for i in everyone if labels[i] == label]
        truth -= min(sum(distances[j][i] for i in members) for j in members)
    return max(greedy_score(medoids) - truth, 0)


def test_hand_derived():
    # On a line at 0, 1 | 10, 11, but labelled across: 0 and 10, 1 and 11.
    points, labels = jnp.array([[0.0], [1.0], [10.0], [11.0]]), jnp.array([0, 1, 0, 1])
    # Truth: each class costs 10. The best two medoids cost 1 + 1, and their clusters share nothing
    # with the classes: NMI 0, the whole multiplier. -2 + 3 + 20.
    loss = jax.jit(partial(losses.clustering, margin_multiplier=3.0))
    np.testing.assert_allclose(loss(points, labels), 21.0, rtol=1e-6)
    # Labelled as they lie, truth is the best clustering; any other costs more than it gains.
    assert loss(points, jnp.array([0, 0, 1, 1])) == 0.0


@pytest.mark.parametrize("multiplier", [0.5, 4.0])
@pytest.mark.parametrize("refinements", [0, 5])
def test_agrees_with_plain_loops(multiplier, refinements):
    for seed in range(3):
        points = draw(seed)
        value, _ = with_gradient(points, LABELS, multiplier, refinements)
        expected = loop_clustering(points, LABELS, multiplier, refinements)
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)


def test_gradient_agrees_with_finite_differences():
    points, step = draw(7), 1e-6
    _, gradient = with_gradient(points, LABELS)
    direction = np.random.default_rng(7).normal(size=points.shape)
    ahead, behind = (loop_clustering(points + sign * step * direction, LABELS) for sign in (1, -1))
    along = np.sum(np.float64(gradient) * direction)
    np.testing.assert_allclose(along, (ahead - behind) / (2 * step), rtol=1e-3)


def test_single_precision_where_double_is_on():
    points = draw(0)
    expected = loop_clustering(points, LABELS)
    with jax.enable_x64(True):
        single = losses.clustering(np.float32(points), LABELS)
        double = losses.clustering(np.float64(points), LABELS)
    assert single.dtype == jnp.float32 and double.dtype == jnp.float64
    np.testing.assert_allclose(single, expected, rtol=1e-5)
    np.testing.assert_allclose(double, expected, rtol=1e-12)


def test_within_shard_map():
    mesh = jax.sharding.Mesh(jax.devices()[:1], "data")
    axis = jax.sharding.PartitionSpec("data")
    points = np.float32(draw(0))
    mapped = jax.shard_map(
        lambda *given: losses.clustering(*given)[None], mesh=mesh, in_specs=axis, out_specs=axis
    )
    expected = loop_clustering(points, LABELS)
    np.testing.assert_allclose(mapped(points, LABELS), [expected], rtol=1e-5)


def test_one_class_and_no_positives_have_nothing_to_learn():
    # The only clustering there is, and clusters of one: both are the truth, up to rounding.
    for labels in (np.zeros(10, int), np.arange(10)):
        value, gradient = with_gradient(draw(8), labels)
        np.testing.assert_allclose(value, 0, atol=1e-6)
        np.testing.assert_allclose(gradient, 0, atol=1e-6)


def test_points_that_coincide():
    points = draw(9)
    points[2], points[4] = points[0], points[3]  # of one class, of two
    for array in (points, np.ones_like(points)):
        value, gradient = with_gradient(array, LABELS)
        assert np.isfinite(value) and np.isfinite(gradient).all()
        np.testing.assert_allclose(value, loop_clustering(array, LABELS), rtol=1e-5)


def test_wrong_arguments_are_named(unchecked):
    with pytest.raises(ValueError, match="refinements: got -1, wanted 0 or more"):
        losses.clustering(jnp.zeros((2, 3)), jnp.zeros(2, int), refinements=-1)
    with pytest.raises(AssertionError, match=r"has shape \(3,\) but expected \(2,?\)"):
        losses.clustering(jnp.zeros((2, 3)), jnp.zeros(3, int))
