r"""Deep metric learning by facility location (Song et al. 2017), the "clustering" loss.

The batch is clustered around medoids: examples of the batch, as many as it has classes. The
clustering by the true classes, each around its best medoid, must score better than any other
clustering, by a margin that grows with the other's deviation from the true one.

The search for the best other clustering has no gradient (``stop_gradient``), and its arrays have a
fixed size: one slot per example, of which the first ``count`` hold a medoid.
"""

import jax
import jax.numpy as jnp

from jaxatr.losses.distances import pairwise_squared_l2, root
from jaxatr.losses.inputs import labelled_batch
from jaxatr.typing import Array, ArrayLike, Bool, Float, Int


def clustering(
    embeddings: Float[ArrayLike, "b d"],
    labels: Int[ArrayLike, " b"],
    *,
    margin_multiplier: float | Float[ArrayLike, ""] = 1.0,
    refinements: int = 5,
) -> Float[Array, ""]:
    r"""Computes the clustering loss of a batch.

    .. math::

       \Big[\max_S \Big\{-\sum_i \min_{j \in S} D_{ij} + \gamma (1 - \mathrm{NMI}(S, y))\Big\}
       + \sum_k \min_{j: y_j = k} \sum_{i: y_i = k} D_{ij}\Big]_+

    :math:`D` is the Euclidean distance, not squared, and NMI is normalised by the geometric mean of
    the two entropies, as in the paper. The maximum over sets of medoids is approximated greedily,
    one medoid at a time, and then refined by sweeps in which each cluster in turn moves its medoid
    to its best member. Ties go to the lower index. The loss is a sum over the batch.

    Args:
      embeddings: ``[b, d]``, of unit length.
      labels: ``[b]``, integers.
      margin_multiplier: :math:`\gamma`, the weight of the margin; an array if it follows a
        schedule.
      refinements: number of sweeps; 0 keeps the greedy medoids.

    Raises:
      ValueError: ``refinements`` is negative.
    """
    if refinements < 0:
        raise ValueError(f"refinements: got {refinements}, wanted 0 or more")
    embeddings, labels = labelled_batch(embeddings, labels)
    distances = root(pairwise_squared_l2(embeddings))
    multiplier = jnp.asarray(margin_multiplier, distances.dtype)
    same = labels[:, None] == labels[None]
    fixed = jax.lax.stop_gradient(distances)
    medoids, count = _greedy(fixed, same, multiplier)

    def sweep(_, medoids):
        return _refine(fixed, same, medoids, count, multiplier)

    medoids = jax.lax.fori_loop(0, refinements, sweep, medoids)
    clusters = _assign(fixed, medoids, count)
    found = -jnp.sum(jnp.take_along_axis(distances, medoids[clusters][:, None], axis=1))
    truth = -jnp.sum(_own_medoid_cost(distances, same))
    structured = _margin(same, clusters, multiplier)
    return jax.nn.relu(found + structured - truth)


def _own_medoid_cost(distances: Float[Array, "b b"], same: Bool[Array, "b b"]):
    """Returns each example's equal share of the cost of its class around the best medoid."""
    to_class = jnp.sum(jnp.where(same, distances, 0), axis=1)
    best = jnp.min(jnp.where(same, to_class[None], jnp.inf), axis=1)
    return best / jnp.sum(same, axis=1).astype(best.dtype)


def _greedy(distances: Float[Array, "b b"], same: Bool[Array, "b b"], multiplier):
    """Returns the greedy medoids, one slot per example, and the number of used slots."""
    size = len(distances)
    count = jnp.sum(~jnp.any(jnp.tril(same, -1), axis=1))
    itself = jnp.eye(size, dtype=bool)

    def add(slot, state):
        medoids, nearest, clusters, free = state
        nearer = (distances < nearest[None]) | itself  # a row per candidate
        moved = jnp.where(nearer, slot, clusters[None])
        cost = jnp.sum(jnp.minimum(distances, nearest[None]), axis=1)
        score = jax.vmap(_margin, (None, 0, None))(same, moved, multiplier) - cost
        chosen = jnp.argmax(jnp.where(free, score, -jnp.inf))
        return (
            medoids.at[slot].set(chosen),
            jnp.minimum(nearest, distances[chosen]),
            moved[chosen],
            free.at[chosen].set(False),
        )

    nothing = (  # made like arrays of the batch, which jax.shard_map tells from constants
        jnp.zeros_like(same[0], int),
        jnp.full_like(distances[0], jnp.inf),
        jnp.zeros_like(same[0], int),
        jnp.ones_like(same[0]),
    )
    return jax.lax.fori_loop(0, count, add, nothing)[0], count


def _refine(
    distances: Float[Array, "b b"],
    same: Bool[Array, "b b"],
    medoids: Int[Array, " b"],
    count: Int[Array, ""],
    multiplier,
) -> Int[Array, " b"]:
    """Moves each cluster's medoid in turn to the cluster's best member.

    Members are tried one by one, clusters in order, so that every example is a candidate exactly
    once.
    """
    clusters = _assign(distances, medoids, count)
    order = jnp.argsort(clusters, stable=True)

    def consider(position, state):
        medoids, best, last = state
        candidate = order[position]
        slot = clusters[candidate]
        tried = medoids.at[slot].set(candidate)
        cost = jnp.sum(jnp.where(clusters == slot, distances[candidate], 0))
        score = _margin(same, _assign(distances, tried, count), multiplier) - cost
        better = (slot != last) | (score > best)
        return jnp.where(better, tried, medoids), jnp.where(better, score, best), slot

    start = medoids, jnp.full_like(distances[0, 0], -jnp.inf), jnp.full_like(medoids[0], -1)
    return jax.lax.fori_loop(0, len(medoids), consider, start)[0]


def _assign(
    distances: Float[Array, "b b"], medoids: Int[Array, " b"], count: Int[Array, ""]
) -> Int[Array, " b"]:
    """Returns the slot of each example's nearest medoid; ties go to the first slot.

    A medoid belongs to its own cluster, even if another medoid coincides with it.
    """
    slots = jnp.arange(len(medoids))
    used = (slots < count)[:, None]
    own = used & (medoids[:, None] == slots[None])
    to_slots = jnp.where(own, -1.0, jnp.where(used, distances[medoids], jnp.inf))
    return jnp.argmin(to_slots, axis=0)


def _margin(
    same: Bool[Array, "b b"], clusters: Int[Array, " b"], multiplier: Float[Array, ""]
) -> Float[Array, ""]:
    return multiplier * (1 - _nmi(same, clusters).astype(multiplier.dtype))


def _nmi(same: Bool[Array, "b b"], clusters: Int[Array, " b"]) -> Float[Array, ""]:
    """Returns the normalised mutual information of classes and clusters; 1 if there is one of each.

    Sums over the cells of the contingency table are computed as sums over examples, each with the
    size of its cell, so no table of all classes by all clusters is needed.
    """
    together = clusters[:, None] == clusters[None]
    size = len(clusters)
    classes, groups, cells = (jnp.sum(m, axis=1) for m in (same, together, same & together))
    information = jnp.mean(jnp.log(size * cells / (classes * groups)))
    entropies = jnp.mean(jnp.log(size / classes)), jnp.mean(jnp.log(size / groups))
    both = entropies[0] * entropies[1]
    one_each = (entropies[0] == 0) & (entropies[1] == 0)
    normalised = information / jnp.sqrt(jnp.where(both > 0, both, 1))
    return jnp.where(one_each, 1.0, normalised)
