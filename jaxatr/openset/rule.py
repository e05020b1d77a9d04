"""The test rule of Safaei et al. (2023), section 2.3, and the fit of its threshold γ."""

import math

import jax.numpy as jnp
import numpy as np

from jaxatr.openset.conformal import conformal_threshold
from jaxatr.openset.decision import Decision
from jaxatr.openset.detectors.cbc import PART as CBC
from jaxatr.openset.detectors.cbc import cbc_score
from jaxatr.openset.logistic import logit, sigmoid
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
    """Returns the predicted class of each example, or ``unknown`` if its probability is below γ.

    The probability is that of the binary classifier of the predicted class. Logits are compared
    instead of probabilities, because a float32 probability saturates at 1.

    Args:
      logits: ``[b, k]``, logits of the closed-set classifier.
      open_logits: ``[b, k]``, one logit per binary classifier.
      gamma: γ, a probability in [0, 1]; an example exactly at γ is accepted.
      unknown: the label of rejected examples.

    Raises:
      ValueError: ``gamma`` is not in [0, 1].

    >>> decide(jnp.array([[2.0, 1.0], [0.0, 1.0]]), jnp.array([[3.0, 0.0], [3.0, 0.0]])).tolist()
    [0, -1]
    """
    known = cbc_score(logits, open_logits) >= _threshold(gamma)
    return jnp.where(known, jnp.argmax(jnp.asarray(logits), axis=-1), unknown)


def gamma_rule(gamma: float) -> Decision:
    """Returns the rule of :func:`decide` as a decision.

    Raises:
      ValueError: ``gamma`` is not in [0, 1].
    """
    return Decision(CBC, {}, threshold=_threshold(gamma))


def _threshold(gamma: float) -> float:
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma: got {gamma}, wanted a probability in [0, 1]")
    return logit(gamma)


def calibrate_gamma(known_scores: Float[np.ndarray, " n"], *, tpr: float = 0.95) -> float:
    """Computes the highest γ at which :func:`decide` accepts the share ``tpr`` of known examples.

    It is the threshold of :func:`~jaxatr.openset.conformal_threshold`, or the lowest score if there
    are too few examples for it.

    Args:
      known_scores: ``[n]``, :func:`~jaxatr.openset.cbc_score` of validation examples of known
        classes, which took no part in training.
      tpr: share of known examples to accept, in (0, 1].

    Raises:
      ValueError: scores are empty or contain NaN, or ``tpr`` is out of range.
    """
    if not len(known_scores):
        raise ValueError("known_scores: got none, wanted [n] with n > 0")
    threshold = conformal_threshold(known_scores, tpr=tpr, least=1)
    gamma = float(sigmoid(threshold))
    while gamma > 0 and logit(gamma) > threshold:  # because the sigmoid is rounded
        gamma = math.nextafter(gamma, 0.0)
    return gamma
