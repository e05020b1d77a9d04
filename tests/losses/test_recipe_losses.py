"""Losses beyond the papers', against plain loops in float64, PyTorch and hand-derived values."""

from functools import partial

import jax
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxatr import losses

# Compiling single operations takes longer than compiling a small loss at once.
smoothed = jax.jit(losses.smoothed_cross_entropy, static_argnames="smoothing")
normalised = jax.jit(losses.normalised_logits, static_argnames="temperature")
slope_of_normalised = jax.jit(
    jax.grad(lambda z: losses.normalised_logits(z, temperature=1.0)[0, 0])
)
contrastive = jax.jit(losses.supervised_contrastive, static_argnames="temperature")
contrastive_and_slope = jax.jit(jax.value_and_grad(losses.supervised_contrastive))
reciprocal, risk = jax.jit(losses.reciprocal_logits), jax.jit(losses.open_space_risk)


def draw(seed=0, b=9, k=5, scale=3.0):
    rng = np.random.default_rng(seed)
    return np.float32(rng.normal(size=(b, k)) * scale), rng.integers(0, k, b)


def log_softmax(z):
    return z - np.log(np.sum(np.exp(z)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_smoothed_cross_entropy_agrees_with_a_loop_and_pytorch(smoothing):
    logits, labels = draw()
    expected = []
    for z, y in zip(np.float64(logits), labels, strict=True):
        target = np.full(5, smoothing / 5) + (1 - smoothing) * np.eye(5)[y]
        expected.append(-sum(target * log_softmax(z)))
    out = smoothed(logits, labels, smoothing=smoothing)
    np.testing.assert_allclose(out, expected, rtol=1e-5)
    torch = pytest.importorskip("torch")
    peer = torch.nn.functional.cross_entropy(
        torch.tensor(logits), torch.tensor(labels), label_smoothing=smoothing, reduction="none"
    )
    np.testing.assert_allclose(out, peer, rtol=1e-5)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
@pytest.mark.parametrize("loss", [losses.supervised_contrastive, losses.normalised_logits])
def test_a_temperature_that_is_not_positive_is_refused(loss, temperature):
    given = draw()[: 2 if loss is losses.supervised_contrastive else 1]
    with pytest.raises(ValueError, match="temperature: got"):
        loss(*given, temperature=temperature)


@pytest.mark.parametrize("smoothing", [-0.1, 2.0])
def test_a_smoothing_out_of_range_is_refused(smoothing):
    with pytest.raises(ValueError, match="smoothing: got"):
        losses.smoothed_cross_entropy(np.eye(2), np.array([0, 1]), smoothing=smoothing)


def test_smoothed_cross_entropy_by_hand():
    # p = (3/4, 1/4); the target is (0.9, 0.1).
    out = smoothed(np.log([[3.0, 1.0]]), np.array([0]), smoothing=0.2)
    np.testing.assert_allclose(out, -0.9 * np.log(3 / 4) - 0.1 * np.log(1 / 4), rtol=1e-6)


@pytest.mark.parametrize("temperature", [0.04, 1.0])
def test_normalised_logits_agree_with_a_loop(temperature):
    logits, _ = draw()
    expected = [z / (temperature * np.sqrt(sum(z * z))) for z in np.float64(logits)]
    out = normalised(logits, temperature=temperature)
    np.testing.assert_allclose(out, expected, rtol=1e-5)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e30])
def test_the_length_of_logits_does_not_matter(scale):
    logits = np.float32([[3.0, -4.0]]) * np.float32(scale)
    expected = [[0.6, -0.8]] if scale else [[0.0, 0.0]]
    np.testing.assert_allclose(normalised(logits, temperature=1.0), expected, rtol=1e-5)
    assert np.isfinite(slope_of_normalised(logits)).all()


def test_gradient_of_normalised_logits():
    function = jax.jit(partial(losses.normalised_logits, temperature=1.0))
    with jax.enable_x64(True):
        check_grads(function, (np.array([[3.0, -4.0, 1.0]]),), order=1, modes=("rev",))


def loop_supervised_contrastive(features, labels, temperature):
    z = [f / np.linalg.norm(f) for f in np.float64(features)]
    values = []
    for i in range(len(z)):
        others = [a for a in range(len(z)) if a != i]
        positives = [p for p in others if labels[p] == labels[i] and labels[i] >= 0]
        if positives:
            below = sum(np.exp(z[i] @ z[a] / temperature) for a in others)
            terms = [np.log(np.exp(z[i] @ z[p] / temperature) / below) for p in positives]
            values.append(-sum(terms) / len(positives))
    return np.mean(values)


@pytest.mark.parametrize("temperature", [0.1, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_supervised_contrastive_agrees_with_a_loop(seed, temperature):
    features, labels = draw(seed, b=12, k=7)
    labels = labels % 4 - 1  # some are of no class
    expected = loop_supervised_contrastive(features, labels, temperature)
    out = contrastive(features, labels, temperature=temperature)
    np.testing.assert_allclose(out, expected, rtol=1e-4)


def test_supervised_contrastive_is_pytorch_metric_learnings():
    peer = pytest.importorskip("pytorch_metric_learning.losses")
    import torch

    features, labels = draw(1, b=12, k=7)
    labels = labels % 3
    expected = peer.SupConLoss(temperature=0.1)(torch.tensor(features), torch.tensor(labels))
    np.testing.assert_allclose(contrastive(features, labels), float(expected), rtol=1e-4)


def test_supervised_contrastive_by_hand():
    # Two of a class at a right angle to the third: each sees cosines 1 and 0 at temperature 1.
    features = np.float32([[2, 0], [1, 0], [0, 3]])
    out = contrastive(features, np.array([0, 0, 1]), temperature=1.0)
    np.testing.assert_allclose(out, np.log(1 + np.exp(-1)), rtol=1e-6)


@pytest.mark.parametrize("labels", [[0, 1, 2], [-1, -1, -1], [0, 0, 1]])
def test_supervised_contrastive_of_nothing(labels):
    """No two examples share a class, and features are all zero."""
    labels = np.array(labels)
    features = np.zeros((3, 2), np.float32)
    value, gradient = contrastive_and_slope(features, labels)
    assert np.isfinite(value) and (gradient == 0).all()
    if labels[0] != labels[1] or labels[0] < 0:
        assert value == 0


def test_supervised_contrastive_of_one_example():
    value, gradient = contrastive_and_slope(np.ones((1, 2), np.float32), np.array([0]))
    assert value == 0 and (gradient == 0).all()


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20, 1e30])
def test_the_length_of_features_does_not_matter(scale):
    features = draw()[0]
    labels = np.arange(len(features)) % 3
    loss, wanted = (
        losses.supervised_contrastive(features * np.float32(factor), labels)
        for factor in (scale, 1)
    )
    np.testing.assert_allclose(loss, wanted, rtol=1e-5)


def test_gradient_of_supervised_contrastive():
    features, labels = draw(2, b=6, k=3)
    with jax.enable_x64(True):
        function = jax.jit(lambda f: losses.supervised_contrastive(f, labels % 2))
        check_grads(function, (np.float64(features),), order=1, modes=("rev",))


def test_outlier_exposure_agrees_with_a_loop():
    logits, _ = draw()
    expected = [-sum(log_softmax(z)) / len(z) for z in np.float64(logits)]
    np.testing.assert_allclose(jax.jit(losses.outlier_exposure)(logits), expected, rtol=1e-5)
    logits = np.float32([[1e4, -1e4, 0.0]])
    slope = jax.jit(jax.grad(lambda z: losses.outlier_exposure(z)[0]))
    assert np.isfinite(slope(logits)).all()


def test_an_outlier_trains_the_classifier_that_errs_most():
    open_logits, _ = draw()
    expected = [max(-np.log(1 - 1 / (1 + np.exp(-z))) for z in row) for row in open_logits]
    np.testing.assert_allclose(jax.jit(losses.refused_by_all)(open_logits), expected, rtol=1e-4)
    slope = jax.jit(jax.grad(lambda z: losses.refused_by_all(z)[0]))
    gradient = slope(np.float32([[0.0, 2.0, -1.0]]))
    np.testing.assert_allclose(gradient, [[0, 1 / (1 + np.exp(-2)), 0]], rtol=1e-6)


def test_reciprocal_points_agree_with_a_loop():
    features, labels = draw(b=7, k=4)
    points, _ = draw(1, b=5, k=4)
    expected = [[np.mean((f - p) ** 2) - f @ p for p in points] for f in features]
    np.testing.assert_allclose(reciprocal(features, points), expected, rtol=1e-4)
    expected = [
        max(0, np.mean((f - points[y]) ** 2) - 2.0 + 1)
        for f, y in zip(features, labels, strict=True)
    ]
    out = risk(features, points, labels, np.float32(2.0))
    np.testing.assert_allclose(out, expected, rtol=1e-5)


@pytest.mark.parametrize("label", [-1, 2])
def test_a_label_without_a_reciprocal_point_is_refused(label):
    features, points = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    given = features, points, np.array([0, label]), np.array(0.5, np.float32)
    with pytest.raises(ValueError, match=f"labels: got {label}, wanted integers in .0, 2"):
        losses.open_space_risk(*given)
    np.testing.assert_allclose(jax.jit(losses.open_space_risk)(*given), [1.5, np.nan])


def test_reciprocal_points_by_hand():
    # The point (1, 1) is 2 from the origin by the mean of squares over two axes: 1.
    features = np.zeros((1, 2), np.float32)
    points = np.float32([[1, 1], [0, 2]])
    np.testing.assert_allclose(reciprocal(features, points), [[1.0, 2.0]])
    found = risk(features, points, np.array([1]), np.float32(0.5))
    np.testing.assert_allclose(found, [2.5])
