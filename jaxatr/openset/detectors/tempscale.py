r"""Largest class probability at a fitted temperature (Guo et al. 2017).

The temperature T minimises the negative log-likelihood of validation examples (section 4.2). The
score is the logarithm of :math:`\max_k \operatorname{softmax}(z / T)_k`.

"On calibration of modern neural networks".
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxatr.openset.detectors.softmax import PART as SOFTMAX
from jaxatr.openset.detectors.softmax import softmax_score
from jaxatr.openset.inputs import finite, known_labels
from jaxatr.openset.logistic import logsumexp
from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float, Int

LIMITS = (0.1, 100.0)
"""Range of T. It has to be bounded, because the likelihood increases as T decreases if all examples
are classified correctly."""


class Temperature(NamedTuple):
    """A fitted model.

    Attributes:
      temperature: ``[]``, T.
    """

    temperature: Float[ArrayLike, ""]


def fit(logits: Float[ArrayLike, "n k"], labels: Int[ArrayLike, " n"]) -> Temperature:
    """Fits the temperature by maximum likelihood, within :data:`LIMITS`.

    The negative log-likelihood is convex in 1/T, so it has a single minimum in log T.

    Args:
      logits: ``[n, k]``, of examples that took no part in training.

    Raises:
      ValueError: there are no examples, a logit is not finite, or a label is not a known class.
    """
    from scipy.optimize import minimize_scalar  # slow to import, and not needed for training

    logits = finite("logits", logits)
    labels = known_labels(labels, *logits.shape)
    right = np.take_along_axis(logits, labels[:, None], axis=1)[:, 0]

    def loss(log_t: float) -> float:
        t = np.exp(log_t)
        return float(np.mean(logsumexp(logits / t) - right / t))

    low, high = np.log(LIMITS)
    found = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-8})
    return Temperature(np.array(np.exp(found.x)))


def score(model: Temperature, logits: Float[ArrayLike, "b k"]) -> Float[np.ndarray, " b"]:
    """Computes the logarithm of the largest probability.

    It is computed in float64, because a low T makes it nearly 0.
    """
    z = np.sort(np.asarray(logits, np.float64) / float(model.temperature), axis=1)
    return -np.log1p(np.exp(z[:, :-1] - z[:, -1:]).sum(axis=1))


def _traced(model: Temperature, logits: Float[ArrayLike, "b k"]) -> Array:
    return softmax_score(jnp.asarray(logits) / model.temperature, log=True)


PART = Score.of_arrays(
    "tempscale",
    "TempScale",
    score,
    calibrate=fit,
    traced=_traced,
    scale="log",
    fixed_threshold=SOFTMAX.fixed_threshold,
    model=Temperature,
)
