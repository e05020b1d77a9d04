"""Losses that form their tuples within the batch, as baselines of quadruplet selection."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from jaxatr import losses
from jaxatr.resolve import nearest, resolve
from jaxatr.typing import Array, Float, Int


class _InBatch(NamedTuple):
    """A loss that forms its tuples within the batch.

    Attributes:
      function: maps embeddings and labels to a scalar.
      margin: name of its margin parameter; None if it has none.
    """

    function: Callable[..., Array]
    margin: str | None


IN_BATCH = {
    "semi_hard_triplet": _InBatch(losses.semi_hard_triplet, "margin"),
    "semi_hard_one": _InBatch(partial(losses.semi_hard_triplet, negatives="one"), "margin"),
    "lifted_structure": _InBatch(losses.lifted_structure, "margin"),
    "n_pairs": _InBatch(losses.n_pairs, None),
    "clustering": _InBatch(losses.clustering, "margin_multiplier"),
    "triplet_global": _InBatch(losses.triplet_global, "margin"),
}
"""Losses by their name in ``embedding.loss``."""


def find_in_batch(name: str) -> _InBatch:
    """Returns a loss that forms its tuples within the batch.

    Args:
      name: a name in :data:`IN_BATCH`, or ``"my.module:function"``, a loss
        ``(embeddings [b, d], labels [b], *, margin) -> scalar``.

    Raises:
      ValueError: there is no such loss.
    """
    if name in IN_BATCH:
        return IN_BATCH[name]
    if ":" not in name:
        wanted = ("quadruplet", *IN_BATCH)
        raise ValueError(
            f"embedding.loss: got {name!r}, wanted one of {', '.join(wanted)} or "
            f"'my.module:function'{nearest(name, wanted)}"
        )
    return _InBatch(resolve(name), "margin")


def in_batch_loss(
    name: str, embeddings: Float[Array, "b d"], labels: Int[Array, " b"], *, margin: float | None
) -> Float[Array, ""]:
    """Computes the loss of a batch.

    Args:
      name: name of the loss (:func:`find_in_batch`).
      embeddings: ``[b, d]``.
      labels: ``[b]``.
      margin: margin of the loss, if it has one; ``None`` for its default.
    """
    function, margin_name = find_in_batch(name)
    options = {margin_name: margin} if margin_name and margin is not None else {}
    return function(embeddings, labels, **options)
