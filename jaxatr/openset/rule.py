"""The test rule of section 2.3, and its threshold γ, fitted to validation data."""

import math

import jax.numpy as jnp
import numpy as np
import scipy.special

from jaxatr.metrics import threshold_at_tpr
from jaxatr.openset.scores.cbc import SCORE as CBC
from jaxatr.openset.scores.cbc import cbc_score
from jaxatr.typing import Array, ArrayLike, Float, Int

SCORE = CBC.name
"""The score that γ is compared with."""


def decide(
    logits: Float[ArrayLike, "b k"],
    open_logits: Float[ArrayLike, "b k"],
    *,
    gamma: float = 0.9,
    unknown: int = -1,
) -> Int[Array, " b"]:
    """Returns the predicted class of each example, or ``unknown`` where its probability is below γ.

    The probability is that of the predicted class's binary classifier. The comparison is made
    between logits, which keep their digits where a float32 probability is already 1.

    Args:
      logits: ``[b, k]``, of the closed-set classifier.
      open_logits: ``[b, k]``, one logit per binary classifier.
      gamma: γ, a probability in [0, 1]; an example exactly at γ is accepted.
      unknown: the index that stands for unknown.

    Raises:
      ValueError: ``gamma`` is no probability.

    >>> decide(jnp.array([[2.0, 1.0], [0.0, 1.0]]), jnp.array([[3.0, 0.0], [3.0, 0.0]])).tolist()
    [0, -1]
    """
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma: got {gamma}, wanted a probability in [0, 1]")
    known = cbc_score(logits, open_logits) >= float(scipy.special.logit(gamma))
    return jnp.where(known, jnp.argmax(jnp.asarray(logits), axis=-1), unknown)


def calibrate_gamma(known_scores: Float[np.ndarray, " n"], *, tpr: float = 0.95) -> float:
    """Returns the highest γ with which :func:`decide` accepts the share ``tpr`` of known examples.

    Args:
      known_scores: ``[n]``, :func:`~jaxatr.openset.cbc_score` of validation examples of known
        classes, which took no part in training.
      tpr: wanted true-positive rate, in (0, 1].

    Raises:
      ValueError: scores are empty or hold a NaN, or ``tpr`` is out of range.
    """
    threshold = threshold_at_tpr(known_scores, tpr=tpr)
    gamma = float(scipy.special.expit(threshold))
    while gamma > 0 and scipy.special.logit(gamma) > threshold:  # by a rounding of the sigmoid
        gamma = math.nextafter(gamma, 0.0)
    return gamma
