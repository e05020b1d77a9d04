r"""Metric-learning losses that form their pairs and triplets within the batch.

All take embeddings ``[b, d]`` and integer labels ``[b]``, and return the mean over the tuples for
which the loss is defined, a scalar. A batch without such tuples (one class only, or no two examples
of a class) gives 0 and zero gradient. Tuples are chosen by the values alone: no gradient flows
through the choice. Gradients are finite where points coincide.

Under ``pmap`` the batch is the device's own; gather embeddings and labels first
(``jax.lax.all_gather``) to form tuples across devices.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

from jaxatr.losses.distances import pairwise_squared_l2, root
from jaxatr.losses.inputs import labelled_batch
from jaxatr.losses.reduce import masked_mean, masked_moments
from jaxatr.typing import Array, ArrayLike, Bool, Float, Int


def semi_hard_triplet(
    embeddings: Float[ArrayLike, "b d"],
    labels: Int[ArrayLike, " b"],
    *,
    margin: float = 0.2,
    negatives: Literal["every", "one"] = "every",
    squared: bool = True,
) -> Float[Array, ""]:
    r"""Computes the triplet loss (equation 2) over semi-hard negatives (Schroff et al. 2015).

    A negative is semi-hard for an anchor and a positive if it is farther than the positive, but by
    less than the margin: :math:`D_{a,p} < D_{a,n} < D_{a,p} + m`. The name is used for two losses:

    - ``"every"``: the mean over all semi-hard triplets of the batch, as in pytorch-metric-learning
      (its ``TripletMarginMiner`` with ``"semihard"`` before its ``TripletMarginLoss``). A pair
      without a semi-hard negative is ignored.
    - ``"one"``: the mean over all pairs of an anchor and a positive, each with the nearest negative
      that is farther than the positive, or, where there is none, the farthest negative, as in
      TensorFlow's former ``contrib``. Every pair is used.

    Args:
      embeddings: ``[b, d]``, of unit length in both sources.
      labels: ``[b]``, integers.
      margin: :math:`m`, in squared distance unless ``squared`` is false.
      negatives: ``"every"`` or ``"one"``, the two losses above.
      squared: whether distances are squared, as in FaceNet and TensorFlow, and in
        pytorch-metric-learning with ``power=2``.

    Raises:
      ValueError: the choice of negatives is unknown.
    """
    if negatives not in ("every", "one"):
        raise ValueError(f"negatives: got {negatives!r}, wanted 'every' or 'one'")
    embeddings, labels = labelled_batch(embeddings, labels)
    distances = pairwise_squared_l2(embeddings)
    distances = distances if squared else root(distances)
    positive, negative = _pairs(labels)
    if negatives == "every":

        def violation(near, far):
            return near - far + margin, (near < far) & (far < near + margin)

        return _mean_over_triplets(violation, distances, positive, negative)
    chosen = jnp.take_along_axis(distances, _nearest_beyond(distances, negative), axis=1)
    pairs = positive & jnp.any(negative, axis=1, keepdims=True)
    return masked_mean(jax.nn.relu(distances - chosen + margin), pairs)


def lifted_structure(
    embeddings: Float[ArrayLike, "b d"], labels: Int[ArrayLike, " b"], *, margin: float = 1.0
) -> Float[Array, ""]:
    r"""Computes the lifted structured loss (Song et al. 2016).

    The mean over the positive pairs :math:`(i, j)` of :math:`\frac12 [J_{ij}]_+^2`, where

    .. math::

       J_{ij} = D_{ij} + \log\Big(\sum_{k: y_k \neq y_i} e^{\alpha - D_{ik}}
       + \sum_{k: y_k \neq y_j} e^{\alpha - D_{jk}}\Big)

    and :math:`D` is the Euclidean distance, not squared.

    Args:
      embeddings: ``[b, d]``, as computed by the network; they should not be normalised.
      labels: ``[b]``, integers.
      margin: :math:`\alpha`.
    """
    embeddings, labels = labelled_batch(embeddings, labels)
    distances = root(pairwise_squared_l2(embeddings))
    positive, negative = _pairs(labels)
    push, any_negative = _log_sum_exp(margin - distances, negative)
    hinge = jax.nn.relu(distances + jnp.logaddexp(push[:, None], push[None]))
    return masked_mean(jnp.square(hinge) / 2, positive & any_negative[:, None])


def n_pairs(
    embeddings: Float[ArrayLike, "b d"], labels: Int[ArrayLike, " b"], *, l2_weight: float = 0.0
) -> Float[Array, ""]:
    r"""Computes the multi-class N-pairs loss (Sohn 2016).

    Each class with at least two examples in the batch gives one pair :math:`(f_i, f_i^+)`, its
    first two examples; the loss is the mean over these classes of

    .. math:: \log\Big(1 + \sum_{j \neq i} e^{f_i \cdot f_j^+ - f_i \cdot f_i^+}\Big)

    Args:
      embeddings: ``[b, d]``, as computed by the network; they should not be normalised.
      labels: ``[b]``, integers.
      l2_weight: weight of the mean squared norm of the pairs' embeddings, which Sohn adds to keep
        them small (TensorFlow's ``reg_lambda`` is twice this weight).
    """
    embeddings, labels = labelled_batch(embeddings, labels)
    same = labels[:, None] == labels[None]
    place = jnp.sum(jnp.tril(same, -1), axis=1)  # number of earlier examples of the same class
    second = same & (place == 1)[None]
    anchors = (place == 0) & jnp.any(second, axis=1)
    positives = embeddings[jnp.argmax(second, axis=1)]
    similarity = jnp.matmul(embeddings, positives.T, precision=jax.lax.Precision.HIGHEST)
    every, _ = _log_sum_exp(similarity, jnp.broadcast_to(anchors[None], same.shape))
    loss = masked_mean(every - jnp.diagonal(similarity), anchors)
    lengths = jnp.sum(jnp.square(embeddings) + jnp.square(positives), axis=-1) / 2
    return loss + l2_weight * masked_mean(lengths, anchors)


def triplet_global(
    embeddings: Float[ArrayLike, "b d"],
    labels: Int[ArrayLike, " b"],
    *,
    margin: float = 0.01,
    global_margin: float = 0.4,
    global_weight: float = 0.8,
    triplet_weight: float = 1.0,
) -> Float[Array, ""]:
    r"""Computes the triplet loss together with the global loss (Kumar et al. 2016).

    .. math::

       \gamma \operatorname{mean}\Big[1 - \frac{D_{a,n}}{D_{a,p} + m}\Big]_+
       + \sigma_+^2 + \sigma_-^2 + \lambda [\mu_+ - \mu_- + t]_+

    The mean is over all triplets of the batch; :math:`\mu` and :math:`\sigma^2` are mean and
    population variance of :math:`D^2/4` over all its positive and all its negative pairs. For
    embeddings of unit length :math:`D^2/4` lies in [0, 1], the scale of the margin :math:`t`.

    Args:
      embeddings: ``[b, d]``, of unit length.
      labels: ``[b]``, integers.
      margin: :math:`m`.
      global_margin: :math:`t`.
      global_weight: :math:`\lambda`.
      triplet_weight: :math:`\gamma`.
    """
    embeddings, labels = labelled_batch(embeddings, labels)
    squared = pairwise_squared_l2(embeddings)
    positive, negative = _pairs(labels)

    def ratio(near, far):
        return jax.nn.relu(1 - far / (near + margin)), True

    triplets = _mean_over_triplets(ratio, root(squared), positive, negative)
    positive_mean, positive_variance = masked_moments(squared / 4, positive)
    negative_mean, negative_variance = masked_moments(squared / 4, negative)
    apart = jax.nn.relu(positive_mean - negative_mean + global_margin)
    loss = triplet_weight * triplets + global_weight * apart + positive_variance + negative_variance
    return jnp.where(jnp.any(positive) & jnp.any(negative), loss, 0)


def _pairs(labels: Int[Array, " b"]) -> tuple[Bool[Array, "b b"], Bool[Array, "b b"]]:
    """Returns masks of the positive (excluding the diagonal) and the negative ordered pairs."""
    same = labels[:, None] == labels[None]
    return same & ~jnp.eye(len(labels), dtype=bool), ~same


def _mean_over_triplets(
    term: Callable,
    distances: Float[Array, "b b"],
    positive: Bool[Array, "b b"],
    negative: Bool[Array, "b b"],
) -> Float[Array, ""]:
    """Computes the mean of ``term`` over all triplets that it selects.

    The b³ triplets are processed a few anchors at a time, and recomputed for the gradient.

    Args:
      term: ``(near, far) -> (value, selected)`` for the distances to a positive and to a negative.
      distances: distances between all examples.
      positive: mask of the positive pairs.
      negative: mask of the negative pairs.
    """

    @jax.checkpoint
    def of_anchor(row):
        distance, positive, negative = row
        value, selected = term(distance[:, None], distance[None])
        selected &= positive[:, None] & negative[None]
        # The number of triplets of one anchor fits an int32; that of 1300 anchors may not.
        count = jnp.sum(selected).astype(distance.dtype)
        return jnp.sum(jnp.where(selected, value, 0)), count

    totals, counts = jax.lax.map(of_anchor, (distances, positive, negative), batch_size=16)
    return jnp.sum(totals) / jnp.maximum(jnp.sum(counts), 1)


def _nearest_beyond(
    distances: Float[Array, "b b"], negative: Bool[Array, "b b"]
) -> Int[Array, "b b"]:
    """Returns, per anchor and positive, the nearest farther negative, else the farthest one."""
    beyond = negative[:, None] & (distances[:, None] > distances[:, :, None])
    nearest = jnp.argmin(jnp.where(beyond, distances[:, None], jnp.inf), axis=2)
    farthest = jnp.argmax(jnp.where(negative, distances, -jnp.inf), axis=1)
    return jnp.where(jnp.any(beyond, axis=2), nearest, farthest[:, None])


def _log_sum_exp(
    values: Float[Array, "b b"], mask: Bool[Array, "b b"]
) -> tuple[Float[Array, " b"], Bool[Array, " b"]]:
    """Returns each row's log-sum-exp over the masked values, and whether there are any."""
    found = jnp.any(mask, axis=1)
    # A row without a masked value keeps all of its values, so that its result and gradient are
    # finite; the caller ignores them.
    kept = jnp.where(mask | ~found[:, None], values, -jnp.inf)
    return jax.nn.logsumexp(kept, axis=1), found
