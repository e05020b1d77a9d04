"""The test rule of section 2.3 and its fitted threshold."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from jaxatr import openset


def draw(seed=0, b=50, k=5, scale=4.0):
    return np.float32(np.random.default_rng(seed).normal(size=(2, b, k)) * scale)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9, 0.999, 1.0])
def test_rule_agrees_with_the_probability_in_float64(gamma):
    logits, open_logits = draw(1)
    predicted = logits.argmax(1)
    p = scipy.special.expit(np.float64(open_logits[np.arange(50), predicted]))
    expected = np.where(p >= gamma, predicted, 5)
    decided = openset.decide(logits, open_logits, gamma=gamma, unknown=5)
    np.testing.assert_array_equal(decided, expected)
    jitted = jax.jit(lambda a, b: openset.decide(a, b, gamma=gamma, unknown=5))
    np.testing.assert_array_equal(jitted(logits, open_logits), expected)


def test_probability_at_gamma_is_accepted():
    assert openset.decide(jnp.array([[1.0, 0.0]]), jnp.array([[0.0, 0.0]]), gamma=0.5)[0] == 0


def test_gamma_must_be_a_probability():
    with pytest.raises(ValueError, match="gamma: got 1.5"):
        openset.decide(jnp.zeros((1, 2)), jnp.zeros((1, 2)), gamma=1.5)


@pytest.mark.parametrize("shift", [-60.0, 0.0, 20.0, 60.0])
@pytest.mark.parametrize("tpr", [0.5, 0.95, 1.0])
def test_fitted_gamma_reaches_the_wanted_rate(shift, tpr):
    logits, open_logits = draw(2, b=200)
    open_logits = open_logits + np.float32(shift)
    scores = np.asarray(openset.cbc_score(logits, open_logits))
    gamma = openset.calibrate_gamma(scores, tpr=tpr)
    accepted = np.asarray(openset.decide(logits, open_logits, gamma=gamma)) >= 0
    assert accepted.mean() >= tpr
    if shift < 20 and tpr < 1:  # where float64 probabilities are distinct
        assert accepted.mean() <= tpr + 0.01
