r"""Energy times the energy-weighted cosine to the nearest training examples (Park et al. 2023).

The energy of an example is multiplied by its guidance: the mean of the k largest cosines between
its features and those of training examples, each weighted by the training example's energy. With E
as minus the energy:

.. math::
  E(x) \cdot \frac{1}{k} \sum_{i \in \mathrm{top}\,k} E(x_i) \, \hat f(x)^\top \hat f(x_i)

"Nearest neighbor guidance for out-of-distribution detection". k is at most the number of examples
of the smallest class, because a neighbour of a higher rank is of another class.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.openset import gallery, nearest_neighbour
from jaxatr.openset.detectors.energy import energy_score
from jaxatr.openset.inputs import finite
from jaxatr.openset.logistic import logsumexp
from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float, Int

NEIGHBOURS = 10
"""Default k, as in pytorch-ood; OpenOOD uses 100 and a hundredth of the training set."""


class Guide(NamedTuple):
    """A fitted model.

    Attributes:
      bank: ``[n, d]``, the training examples' features, scaled to length 1, times their energies.
      k: ``[]``, number of neighbours.
    """

    bank: Float[ArrayLike, "n d"]
    k: Int[ArrayLike, ""] = np.array(NEIGHBOURS)


def fit(
    features: Float[ArrayLike, "n d"],
    labels: Int[ArrayLike, " n"],
    logits: Float[ArrayLike, "n k"],
    *,
    k: int = NEIGHBOURS,
) -> Guide:
    """Stores the features of all training examples; the paper samples large sets.

    Args:
      k: number of neighbours, bounded by the number of examples of the smallest class.

    Raises:
      ValueError: a value is not finite, or ``k`` is not positive.
    """
    if k < 1:
        raise ValueError(f"k: got {k}, wanted at least 1")
    smallest = np.unique_counts(np.asarray(labels)).counts.min(initial=k)
    energies = logsumexp(finite("logits", logits), keepdims=True)
    unit = np.asarray(nearest_neighbour.fit(features).features)
    return Guide((unit * energies).astype(np.float32), np.array(min(k, smallest)))


def score(
    model: Guide,
    features: Float[ArrayLike, "b d"],
    logits: Float[ArrayLike, "b k"],
    *,
    block_size: int = 256,
) -> Float[Array, " b"]:
    """Computes the product of minus the energy and the guidance.

    Args:
      block_size: number of queries per block; memory is proportional to ``block_size * n``.

    Raises:
      ValueError: ``block_size`` is not positive.
    """
    if block_size < 1:
        raise ValueError(f"block_size: got {block_size}, wanted at least 1")
    bank = jnp.asarray(model.bank)
    queries = jnp.asarray(features, bank.dtype)
    return energy_score(logits) * _guidance(bank, queries, _count(model), block_size)


def _count(model: Guide) -> int:
    return min(int(model.k), len(model.bank))  # of runs of earlier versions, 10


@partial(jax.jit, static_argnums=(2, 3))
def _guidance(bank: Array, queries: Array, k: int, block_size: int) -> Array:
    def guidance(query: Array) -> Array:
        query = gallery.unit(query)
        products = jnp.dot(bank, query, precision=jax.lax.Precision.HIGHEST)
        last = products[nearest_neighbour.kth_largest(products, k)]
        above = products > last
        rest = k - jnp.sum(above)  # number of ties with the k-th that belong to the k largest
        return (jnp.sum(products, where=above) + rest.astype(last.dtype) * last) / k

    return jax.lax.map(guidance, queries, batch_size=block_size)


def _traced(
    model: Guide, features: Float[ArrayLike, "b d"], logits: Float[ArrayLike, "b k"]
) -> Array:
    """Computes the score without a loop over queries or bit casts."""
    bank, unit = jnp.asarray(model.bank), gallery.unit(jnp.asarray(features))
    products = jnp.dot(bank, unit.T, precision=jax.lax.Precision.HIGHEST).T
    nearest, _ = jax.lax.top_k(products, _count(model))
    return energy_score(logits) * jnp.mean(nearest, axis=1)


PART = Score.of_arrays(
    "nnguide", "NNGuide", score, fit, traced=_traced, shapes=("k",), recorded=False, model=Guide
)
