r"""Mahalanobis distance relative to that to all classes together (Ren et al. 2021).

The score is minus the squared distance to the nearest class, plus the squared distance to a
Gaussian of all training features:

.. math:: -\min_c \left( \mathrm{MD}_c(f) - \mathrm{MD}_0(f) \right)

"A simple fix to Mahalanobis distance".
"""

from typing import NamedTuple

import numpy as np

from jaxatr.openset.detectors import mahalanobis
from jaxatr.openset.detectors.mahalanobis import Mahalanobis
from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float, Int


class RelativeMahalanobis(NamedTuple):
    """A fitted model.

    Attributes:
      center: ``[d]``, the mean of all features.
      whitening: ``[d, d]``, transforms centred features to unit covariance within classes.
      means: ``[k, d]``, the whitened means of the classes.
      background: ``[d, d]``, transforms centred features to unit covariance over all classes.
    """

    center: Float[ArrayLike, " d"]
    whitening: Float[ArrayLike, "d d"]
    means: Float[ArrayLike, "k d"]
    background: Float[ArrayLike, "d d"]


def fit(features: Float[ArrayLike, "n d"], labels: Int[ArrayLike, " n"]) -> RelativeMahalanobis:
    """Fits the Gaussians of the classes and that of all features, in float64.

    Args:
      labels: ``[n]``, integers; every class from 0 to the largest must occur.

    Raises:
      ValueError: a feature is not finite; a class has no example; no class varies.
    """
    own = mahalanobis.fit(features, labels)
    everything = mahalanobis.fit(features, np.zeros(len(np.asarray(labels)), int))
    return RelativeMahalanobis(own.center, own.whitening, own.means, everything.whitening)


def score(model: RelativeMahalanobis, features: Float[ArrayLike, "b d"]) -> Float[Array, " b"]:
    """Computes the squared distance to all classes together minus that to the nearest class."""
    classes = Mahalanobis(model.center, model.whitening, model.means)
    origin = np.zeros((1, *np.shape(model.center)))
    everything = Mahalanobis(model.center, model.background, origin)
    return mahalanobis.score(classes, features) - mahalanobis.score(everything, features)


PART = Score.of_arrays(
    "rmds", "relative Mahalanobis", score, fit, traced=score, model=RelativeMahalanobis
)
