r"""Minus the divergence from the nearest mean probabilities (Hendrycks et al. 2022).

The template of class k is :math:`d_k`, the mean class probabilities of the validation examples that
are predicted as k. The score is minus the divergence from the nearest template:

.. math:: -\min_k D_{\mathrm{KL}}(p(y \mid x) \,\Vert\, d_k)

KL matching, from "Scaling out-of-distribution detection".
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.openset.inputs import finite
from jaxatr.openset.logistic import log_softmax, logsumexp
from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float


class KLMatching(NamedTuple):
    """A fitted model.

    Attributes:
      log_templates: ``[m, k]``, logarithms of the templates of the m classes that were predicted
        for at least one example.
    """

    log_templates: Float[ArrayLike, "m k"]


def fit(logits: Float[ArrayLike, "n k"]) -> KLMatching:
    """Averages the probabilities of the examples by predicted class, in float64.

    Args:
      logits: ``[n, k]``, of examples of known classes that took no part in training.

    Raises:
      ValueError: there are no examples, or a logit is not finite.
    """
    logits = finite("logits", logits)
    log_p, predicted = log_softmax(logits), logits.argmax(axis=1)
    groups = [log_p[predicted == k] for k in np.unique(predicted)]
    means = [logsumexp(group, axis=0) - np.log(len(group)) for group in groups]
    return KLMatching(np.stack(means))


@jax.jit
def score(model: KLMatching, logits: Float[ArrayLike, "b k"]) -> Float[Array, " b"]:
    """Computes minus the divergence of each example's probabilities from the nearest template."""
    log_p = jax.nn.log_softmax(jnp.asarray(logits), axis=-1)[:, None]
    # Subtracted first, to avoid cancellation.
    beyond = log_p - jnp.asarray(model.log_templates)[None]
    return -jnp.min(jnp.sum(jnp.exp(log_p) * beyond, axis=-1), axis=-1)


PART = Score.of_arrays("klm", "KL matching", score, calibrate=fit, traced=score, model=KLMatching)
