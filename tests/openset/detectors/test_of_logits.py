"""Scores that are functions of the logits: SoftMax, MLS, energy and CBC."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from jaxatr import openset


def draw(seed=0, b=50, k=5, scale=4.0):
    return np.float32(np.random.default_rng(seed).normal(size=(2, b, k)) * scale)


def test_scores_agree_with_numpy():
    logits, open_logits = draw()
    p = scipy.special.softmax(np.float64(logits), axis=1)
    np.testing.assert_allclose(openset.softmax_score(logits), p.max(1), rtol=1e-5)
    np.testing.assert_allclose(
        openset.softmax_score(logits, log=True), np.log(p.max(1)), rtol=1e-4, atol=1e-9
    )
    np.testing.assert_array_equal(openset.max_logit_score(logits), logits.max(1))
    picked = [z[y] for z, y in zip(open_logits, logits.argmax(1), strict=True)]
    np.testing.assert_array_equal(openset.cbc_score(logits, open_logits), picked)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1000.0])
def test_energy_agrees_with_numpy(temperature):
    logits, _ = draw(scale=50.0)
    expected = [
        temperature * np.log(sum(np.exp(np.float64(z) / temperature) for z in row))
        for row in logits
    ]
    got = openset.energy_score(logits, temperature=temperature)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_energy_is_finite_and_needs_a_temperature():
    assert openset.energy_score(jnp.full((1, 3), 1e4))[0] == 1e4 + np.float32(np.log(3))
    with pytest.raises(ValueError, match="temperature: got 0.0, wanted a positive number"):
        openset.energy_score(jnp.zeros((1, 2)), temperature=0.0)


def test_energy_is_pytorch_oods(pytorch_ood):
    logits, _ = draw(scale=10.0)
    for temperature in (1.0, 100.0):
        expected = -pytorch_ood.EnergyBased.score(pytorch_ood.tensor(logits), t=temperature)
        got = openset.energy_score(logits, temperature=temperature)
        np.testing.assert_allclose(got, expected, atol=1e-4, rtol=1e-6)


def test_log_softmax_score_has_no_ties_where_the_probability_saturates():
    logits = np.float32([[30, 0, 0], [40, 0, 0], [50, 10, 0]])
    assert len(set(np.asarray(openset.softmax_score(logits)).tolist())) == 1
    log = np.asarray(openset.softmax_score(logits, log=True))
    np.testing.assert_allclose(log, -np.exp(np.float64([-30, -40, -40])) * [2, 2, 1], rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_logits_of_16_bits_are_scored_in_float32(dtype):
    logits = np.array([[20, 0, 0], [21, 0, 0], [22, 8, 0]])  # in 16 bits, exp(-17) is 0
    for score in (partial(openset.softmax_score, log=True), openset.energy_score):
        found = np.asarray(score(jnp.asarray(logits, dtype)))
        np.testing.assert_array_equal(found, score(np.float32(logits)))
        with jax.numpy_dtype_promotion("strict"):
            np.testing.assert_array_equal(score(jnp.asarray(logits, dtype)), found)


def test_cbc_score_is_a_logit_and_does_not_saturate():
    logits = jnp.zeros((2, 2))
    score = openset.cbc_score(logits, jnp.array([[20.0, 0.0], [40.0, 0.0]]))
    assert score[1] > score[0] and jax.nn.sigmoid(score)[0] == jax.nn.sigmoid(score)[1]


def test_logits_of_other_shapes_are_a_callers_mistake(unchecked):
    for score in (openset.softmax_score, openset.max_logit_score, openset.energy_score):
        with pytest.raises(AssertionError, match="rank"):
            score(np.zeros(3))
    with pytest.raises(AssertionError, match="shape"):
        openset.cbc_score(np.zeros((2, 3)), np.zeros((2, 4)))
