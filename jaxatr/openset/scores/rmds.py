r"""Mahalanobis distance less that to all classes together (Ren et al. 2021).

The distance to the nearest class, less that to one Gaussian of all training features, negated:

.. math:: -\min_c \left( \mathrm{MD}_c(f) - \mathrm{MD}_0(f) \right)

"A simple fix to Mahalanobis distance".
"""

from typing import NamedTuple

import numpy as np

from jaxatr.openset.outputs import Outputs
from jaxatr.openset.score import Score
from jaxatr.openset.scores import mahalanobis
from jaxatr.openset.scores.mahalanobis import Mahalanobis
from jaxatr.typing import Array, ArrayLike, Float, Int


class RelativeMahalanobis(NamedTuple):
    """A fitted model.

    Attributes:
      center: ``[d]``, the mean of all features.
      whitening: ``[d, d]``, as :class:`~jaxatr.openset.scores.mahalanobis.Mahalanobis` has it.
      means: ``[k, d]``, as there.
      background: ``[d, d]``: features less the centre, times this, have covariance 1.
    """

    center: Float[ArrayLike, " d"]
    whitening: Float[ArrayLike, "d d"]
    means: Float[ArrayLike, "k d"]
    background: Float[ArrayLike, "d d"]


def fit(features: Float[ArrayLike, "n d"], labels: Int[ArrayLike, " n"]) -> RelativeMahalanobis:
    """Fits the classes' Gaussians and the one of all, in float64.

    Args:
      features: ``[n, d]``, of training examples.
      labels: ``[n]``, integers; every class from 0 to the largest must occur.

    Raises:
      ValueError: a feature is not finite; a class has no example; no class varies.
    """
    own = mahalanobis.fit(features, labels)
    everything = mahalanobis.fit(features, np.zeros(len(np.asarray(labels)), int))
    return RelativeMahalanobis(own.center, own.whitening, own.means, everything.whitening)


def score(model: RelativeMahalanobis, features: Float[ArrayLike, "b d"]) -> Float[Array, " b"]:
    """Computes minus the distance to the nearest class, plus that to all together.

    Args:
      model: of :func:`fit`.
      features: ``[b, d]``.
    """
    classes = Mahalanobis(model.center, model.whitening, model.means)
    nowhere = np.zeros((1, *np.shape(model.center)))
    everything = Mahalanobis(model.center, model.background, nowhere)
    return mahalanobis.score(classes, features) - mahalanobis.score(everything, features)


def _score(model: RelativeMahalanobis, outputs: Outputs) -> Array:
    return score(model, outputs.more["features"])


SCORE = Score(
    name="rmds",
    title="relative Mahalanobis",
    score=_score,
    traced=_score,
    fit=lambda out, _: fit(out.more["features"], out.labels),
    needs=("features",),
    model=RelativeMahalanobis,
)
