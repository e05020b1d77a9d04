"""The confounding label: its loss, and both detectors on synthetic norms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import metrics
from jaxatr.openset import conflabel, conflabel_detector

KEY = jax.random.key(0)


def test_the_loss_asks_for_every_class_at_once():
    logits = np.random.default_rng(0).normal(0, 5, (6, 4))
    expected = np.mean(np.log1p(np.exp(-logits)), axis=1)
    np.testing.assert_allclose(conflabel.confounding_loss(logits), expected, rtol=1e-5)
    assert conflabel.confounding_loss(np.full((1, 3), -1e4, np.float32))[0] == 1e4


def norms(count, shift, seed):
    """Log-normal norms of five layers; those of unknown examples are larger in the second layer."""
    draw = np.random.default_rng(seed)
    return np.float32(np.exp(draw.normal(np.array([0, shift, 0, -5, 0]), 1, (count, 5))))


def test_the_sum_is_higher_for_the_known():
    np.testing.assert_allclose(
        conflabel.sum_score(np.array([[1.0, 2.0], [0.5, 0.25]])), [-3, -0.75]
    )


@pytest.fixture(scope="module")
def detector():
    return conflabel_detector.fit(norms(300, 0, 0), norms(90, 3, 1), key=KEY)


@pytest.mark.slow
def test_the_detector_finds_the_layer_that_tells_them_apart(detector):
    known, unknown = (
        np.asarray(conflabel_detector.score(detector, norms(500, shift, seed)))
        for shift, seed in ((0, 2), (3, 3))
    )
    best = metrics.auroc(-norms(500, 0, 2)[:, 1], -norms(500, 3, 3)[:, 1])  # the best possible
    assert metrics.auroc(known, unknown) > best - 0.03
    assert metrics.auroc(known, unknown) > metrics.auroc(
        *(np.asarray(conflabel.sum_score(norms(500, s, k))) for s, k in ((0, 2), (3, 3)))
    )


def test_norms_of_zero_do_no_harm():
    known = norms(20, 0, 0)
    known[:, 3] = 0  # a head without a gradient of the loss
    detector = conflabel_detector.fit(
        known, np.where(np.arange(5) == 3, 0, norms(20, 3, 1)), key=KEY, steps=9
    )
    assert bool(jnp.all(jnp.isfinite(conflabel_detector.score(detector, known))))


def test_both_kinds_are_needed():
    with pytest.raises(ValueError, match="got 0 known and 4 unknown"):
        conflabel_detector.fit(norms(0, 0, 0), norms(4, 0, 0), key=KEY)


def test_the_detector_fits_a_network_with_other_magnitudes(detector):
    """The same layer separates the examples, but all norms of the other network are larger."""
    scale = np.float32([1e3, 50, 7, 1e5, 0.2])
    own = conflabel_detector.adapted(detector, scale * norms(400, 0, 4))
    known, unknown = (scale * norms(500, shift, seed) for shift, seed in ((0, 2), (3, 3)))
    found = metrics.auroc(
        *(np.asarray(conflabel_detector.score(own, norms)) for norms in (known, unknown))
    )
    best = metrics.auroc(-known[:, 1], -unknown[:, 1])
    assert found > best - 0.04
    with pytest.raises(ValueError, match="got the norms of 4 layers, wanted 5"):
        conflabel_detector.adapted(detector, norms(9, 0, 0)[:, :4])
