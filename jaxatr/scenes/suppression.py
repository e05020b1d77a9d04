"""Non-maximum suppression: of boxes that overlap, the one with the highest score stays."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import inference
from jaxatr.scenes import boxes as geometry
from jaxatr.typing import Array, ArrayLike, Bool, Float, Int, Shaped


class Kept(NamedTuple):
    """The boxes that stay, by descending score; of equal scores, the lower index comes first.

    Attributes:
      indices: ``[..., keep]``, row numbers of the boxes; 0 where not valid.
      valid: ``[..., keep]``, whether there is such a box.
    """

    indices: Int[Array, "... keep"]
    valid: Bool[Array, "... keep"]


@partial(jax.jit, static_argnames="keep")
def suppress(
    boxes: Float[ArrayLike, "... n 4"],
    scores: Float[ArrayLike, "... n"],
    labels: Int[ArrayLike, "... n"] | None = None,
    *,
    keep: int,
    overlap: float | Float[ArrayLike, ""] = 0.5,
    least: float | Float[ArrayLike, ""] = -np.inf,
) -> Kept:
    """Keeps the box with the highest score, drops those that overlap it, and so on.

    It may be traced. Leading axes are images of a batch, each treated alone. Time is proportional
    to n times the number of boxes that stay, memory to n.

    Args:
      boxes: ``[..., n, 4]``; one that is empty or not finite is never kept.
      scores: ``[..., n]``; a box whose score is not finite is never kept, so that padding has the
        score NaN.
      labels: ``[..., n]``, classes, of which each is treated alone; None to suppress over classes.
      keep: the number of boxes to return at most.
      overlap: the IoU above which a box is dropped.
      least: the lowest score that is kept.
    """
    boxes, scores = jnp.asarray(boxes), jnp.asarray(scores)
    # In 16 bits, the area of 256 x 256 pixels is infinite.
    boxes = boxes.astype(jnp.promote_types(boxes.dtype, jnp.float32))
    usable = jnp.isfinite(boxes).all(axis=-1) & (geometry.area(boxes) > 0)
    usable &= jnp.isfinite(scores) & (scores >= least)
    boxes = jnp.where(usable[..., None], boxes, 0)
    areas = jnp.asarray(geometry.area(boxes))
    rows, places = (jnp.arange(n, dtype=jnp.int32) for n in (scores.shape[-1], keep))

    def some_left(state: tuple[Array, Array, Array, Array]) -> Array:
        number, left, *_ = state
        return (number < keep) & left.any()

    def one(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        number, left, indices, valid = state
        best = jnp.argmax(jnp.where(left, scores, -jnp.inf), axis=-1)  # the first of equals
        best = best.astype(jnp.int32)  # also where jax counts in 64 bits
        # Masks instead of indices of a batch, which ONNX has no operators for.
        own = rows == best[..., None]
        place = (places == number) & left.any(axis=-1, keepdims=True)
        box = jnp.where(own[..., None], boxes, -jnp.inf).max(axis=-2, keepdims=True)
        shared = geometry.intersection(box, boxes)
        # Without a division, a box with overlap of a simple fraction is decided exactly.
        drop = shared > overlap * (geometry.area(box) + areas - shared)
        if labels is not None:
            classes = jnp.asarray(labels)
            label = jnp.where(own, classes, 0).sum(axis=-1, keepdims=True, dtype=classes.dtype)
            drop &= label == classes
        indices = jnp.where(place, best[..., None], indices)
        return number + 1, left & ~drop & ~own, indices, valid | place

    shape = (*scores.shape[:-1], keep)
    empty = jnp.zeros(shape, jnp.int32), jnp.zeros(shape, bool)
    if 0 in scores.shape:
        return Kept(*empty)
    _, _, indices, valid = jax.lax.while_loop(some_left, one, (jnp.int32(0), usable, *empty))
    return Kept(indices, valid)


def kept(
    boxes: Shaped[np.ndarray, "n 4"],
    scores: Shaped[np.ndarray, " n"],
    labels: Shaped[np.ndarray, " n"] | None = None,
    *,
    overlap: float = 0.5,
    least: float = -np.inf,
) -> Int[np.ndarray, " m"]:
    """Returns the row numbers of all boxes that :func:`suppress` keeps, for arrays of any length.

    Arrays are padded to a few lengths, so that few programs are compiled.
    """
    count = len(scores)
    more = inference.filled_size(count) - count
    padded = np.pad(np.asarray(scores, np.float32), (0, more), constant_values=np.nan)
    found = suppress(
        np.pad(np.asarray(boxes, np.float32), ((0, more), (0, 0))),
        padded,
        None if labels is None else np.pad(np.asarray(labels, np.int32), (0, more)),
        keep=count + more,
        overlap=overlap,
        least=least,
    )
    return np.asarray(found.indices)[np.asarray(found.valid)]
