r"""Distance to the nearest class in feature space (Lee et al. 2018, "A simple unified framework").

The features of each class are modelled as Gaussian, with a mean per class and a shared covariance
(equation 1). The score is equation 2:

.. math:: -\min_c\; (f - \mu_c)^\top \Sigma^{-1} (f - \mu_c)

The paper's input perturbation and ensemble over layers are not included.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.openset.inputs import finite, known_labels
from jaxatr.openset.score import Answer, Comparing, Score
from jaxatr.typing import Array, ArrayLike, Float, Int


class Mahalanobis(NamedTuple):
    """A fitted model.

    Attributes:
      center: ``[d]``, the mean of all features.
      whitening: ``[d, d]``, transforms centred features to unit covariance within classes; the
        directions in which no class varies become 0.
      means: ``[k, d]``, the whitened means of the classes.
      further: ``[]``, number of classes added after the fit; their means come last.
    """

    center: Float[ArrayLike, " d"]
    whitening: Float[ArrayLike, "d d"]
    means: Float[ArrayLike, "k d"]
    further: Int[ArrayLike, ""] = np.array(0)


def fit(features: Float[ArrayLike, "n d"], labels: Int[ArrayLike, " n"]) -> Mahalanobis:
    """Computes the means and the covariance of the features, in float64.

    Directions in which no class varies, such as features that never activate, are ignored: a
    singular covariance is replaced by its pseudo-inverse where equation 2 needs the inverse.

    Args:
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
        raise ValueError("features: every example equals the mean of its class, wanted variation")
    whitening = vectors * np.where(varies, 1 / np.sqrt(np.where(varies, values, 1)), 0)
    return Mahalanobis(center, whitening, means @ whitening)


@jax.jit
def score(model: Mahalanobis, features: Float[ArrayLike, "b d"]) -> Float[Array, " b"]:
    """Computes minus the squared distance to the nearest class, in standard deviations."""
    return -jnp.min(_squares(model, features), axis=-1)


@jax.jit
def _squares(model: Mahalanobis, features: Float[ArrayLike, "b d"]) -> Float[Array, "b k"]:
    """Computes the squared distance to each class."""
    chex.assert_shape(features, (None, *np.shape(model.center)))
    whitened = _whitened(model, features)
    # Squaring differences avoids cancellation; when compiled, [b, k, d] is never stored.
    return jnp.sum(jnp.square(whitened[:, None] - jnp.asarray(model.means)[None]), axis=-1)


def _whitened(model: Mahalanobis, features: Float[ArrayLike, "b d"]) -> Float[Array, "b d"]:
    centred = jnp.asarray(features) - jnp.asarray(model.center)[None]
    return jnp.dot(centred, jnp.asarray(model.whitening), precision=jax.lax.Precision.HIGHEST)


def _score(model: Mahalanobis, features: Float[ArrayLike, "b d"]) -> Array | Answer:
    """Computes the score, and names the class of examples that are nearest to an added class."""
    scores = score(model, features)
    if not (further := int(np.asarray(model.further))):
        return scores
    nearest = np.asarray(_squares(model, features)).argmin(axis=1)
    fitted = len(np.asarray(model.means)) - further
    return Answer(scores, np.where(nearest >= fitted, nearest, -1))


def _with_means(
    model: Mahalanobis, rows: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], classes: int
) -> Mahalanobis:
    """Adds the means of new classes; the covariance and the existing means are unchanged."""
    fitted = len(np.asarray(model.means))
    means = [rows[labels == c].mean(axis=0) for c in range(fitted, classes)]
    every = np.concatenate([np.asarray(model.means), np.reshape(means, (-1, rows.shape[1]))])
    return model._replace(means=every, further=np.array(classes - fitted))


PART = Score.of_arrays(
    "mahalanobis",
    "Mahalanobis",
    _score,
    fit,
    traced=score,
    model=Mahalanobis,
    comparing=Comparing(_whitened, _with_means, extends=False),
)
