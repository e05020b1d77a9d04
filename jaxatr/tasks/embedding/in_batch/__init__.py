"""Losses that form their tuples within the batch, as baselines of quadruplet selection.

Each is a file, found by its place (:mod:`jaxatr.parts`).
"""

from jaxatr.parts import Parts
from jaxatr.resolve import nearest, resolve
from jaxatr.tasks.embedding.in_batch.batch_loss import BatchLoss
from jaxatr.typing import Array, Float, Int

#: Losses by their name in ``embedding.loss``.
IN_BATCH = Parts(__name__, BatchLoss, field="embedding.loss")


def find_in_batch(name: str) -> BatchLoss:
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
    return BatchLoss(resolve(name))


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
