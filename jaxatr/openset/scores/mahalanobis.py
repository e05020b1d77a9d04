r"""Distance to the nearest class in feature space (Lee et al. 2018, "A simple unified framework").

The features of each class are taken for Gaussian, with a mean of their own and one covariance for
all (equation 1); the score is equation 2:

.. math:: -\min_c\; (f - \mu_c)^\top \Sigma^{-1} (f - \mu_c)

Perturbation of the input and the ensemble over layers, of the same paper, are not included.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.openset.inputs import finite, known_labels
from jaxatr.openset.outputs import Outputs
from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float, Int


class Mahalanobis(NamedTuple):
    """A fitted model.

    Attributes:
      center: ``[d]``, the mean of all features.
      whitening: ``[d, d]``: features less the centre, times this, have covariance 1 within a
        class, and 0 in the directions in which no class varies.
      means: ``[k, d]``, of the classes, whitened.
    """

    center: Float[ArrayLike, " d"]
    whitening: Float[ArrayLike, "d d"]
    means: Float[ArrayLike, "k d"]


def fit(features: Float[ArrayLike, "n d"], labels: Int[ArrayLike, " n"]) -> Mahalanobis:
    """Returns means and covariance of the features, in float64.

    Directions in which no class varies, such as features that never fire, do not count: the
    inverse of a singular covariance is its pseudo-inverse.

    Args:
      features: ``[n, d]``, of training examples.
      labels: ``[n]``, integers; every class from 0 to the largest must occur.

    Raises:
      ValueError: a feature is not finite; a class has no example; no class varies.
    """
    features = finite("features", features)
    n, d = features.shape
    classes = int(np.max(labels)) + 1
    labels = known_labels(labels, n, classes)
    counts = np.bincount(labels, minlength=classes)
    if not counts.all():
        raise ValueError(f"labels: no example of class {np.flatnonzero(counts == 0)[0]}")
    center = features.mean(axis=0)
    features = features - center
    means = np.stack([features[labels == c].mean(axis=0) for c in range(classes)])
    rest = features - means[labels]
    values, vectors = np.linalg.eigh(rest.T @ rest / n)
    varies = values > values[-1] * d * np.finfo(np.float64).eps
    if not varies.any():
        raise ValueError("features: every example is its class's mean, wanted some that are not")
    whitening = vectors * np.where(varies, 1 / np.sqrt(np.where(varies, values, 1)), 0)
    return Mahalanobis(center, whitening, means @ whitening)


@jax.jit
def score(model: Mahalanobis, features: Float[ArrayLike, "b d"]) -> Float[Array, " b"]:
    """Returns minus the squared distance to the nearest class, in standard deviations.

    Args:
      model: of :func:`fit`.
      features: ``[b, d]``.
    """
    chex.assert_shape(features, (None, *np.shape(model.center)))
    centred = jnp.asarray(features) - jnp.asarray(model.center)
    whitened = jnp.dot(centred, jnp.asarray(model.whitening), precision=jax.lax.Precision.HIGHEST)
    # Differences before squares: nothing cancels, and compiled, [b, k, d] is never stored.
    squares = jnp.square(whitened[:, None] - jnp.asarray(model.means))
    return -jnp.min(jnp.sum(squares, axis=-1), axis=-1)


def _score(model: Mahalanobis, outputs: Outputs) -> Array:
    return score(model, outputs.more["features"])


SCORE = Score(
    name="mahalanobis",
    title="Mahalanobis",
    score=_score,
    traced=_score,
    fit=lambda out, _: fit(out.more["features"], out.labels),
    needs=("features",),
    model=Mahalanobis,
)
