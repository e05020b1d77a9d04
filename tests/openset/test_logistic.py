"""Tests of logits and probabilities, against :mod:`scipy.special`."""

import numpy as np
import pytest
import scipy.special

from jaxatr.openset import logistic

LOGITS = np.random.default_rng(0).normal(0, 30, (100, 7))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (logistic.logsumexp(LOGITS), scipy.special.logsumexp(LOGITS, axis=-1)),
        (logistic.log_softmax(LOGITS), scipy.special.log_softmax(LOGITS, axis=-1)),
        (logistic.softmax(LOGITS), scipy.special.softmax(LOGITS, axis=-1)),
        (logistic.sigmoid(LOGITS), scipy.special.expit(LOGITS)),
    ],
    ids=["logsumexp", "log_softmax", "softmax", "sigmoid"],
)
def test_values_equal_those_of_scipy(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-13)


def test_sigmoid_takes_extreme_logits():
    found = logistic.sigmoid(np.array([-np.inf, -800.0, 0.0, 800.0, np.inf, np.nan]))
    np.testing.assert_array_equal(found, [0, 0, 0.5, 1, 1, np.nan])


@pytest.mark.parametrize("probability", [0.0, 1e-300, 0.3, 0.5, 1 - 1e-12, 1.0])
def test_logit_equals_that_of_scipy(probability):
    assert logistic.logit(probability) == pytest.approx(scipy.special.logit(probability), rel=1e-14)
