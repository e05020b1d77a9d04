"""Non-maximum suppression: of boxes that overlap, the one with the highest score stays."""

from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import inference
from jaxatr.scenes import boxes as geometry
from jaxatr.typing import Array, ArrayLike, Bool, Float, Int, Shaped

_BLOCK = 512  # boxes that are decided about at once

_Number: TypeAlias = Int[ArrayLike, ""] | int


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
    to the square of the number of boxes that can be kept, memory to n.

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
    *batch, count = scores.shape
    if 0 in scores.shape:
        return Kept(jnp.zeros((*batch, keep), jnp.int32), jnp.zeros((*batch, keep), bool))
    _, order = jax.lax.top_k(jnp.where(usable, scores, -jnp.inf), count)  # of equals, the first
    boxes, usable = _at(boxes, order), _at(usable, order)
    labels = None if labels is None else _at(jnp.asarray(labels), order)
    areas, size = jnp.asarray(geometry.area(boxes)), min(count, _BLOCK)
    within = jnp.arange(size, dtype=jnp.int32)
    part = partial(jax.lax.dynamic_slice_in_dim, slice_size=size, axis=len(batch))

    def drops(start: _Number, other: _Number) -> Array:
        """Whether each box of a block drops those of another that have a lower rank."""
        rows, columns = part(boxes, start)[..., None, :], part(boxes, other)[..., None, :, :]
        shared = jnp.asarray(geometry.intersection(rows, columns))
        both = part(areas, start)[..., None] + part(areas, other)[..., None, :]
        # Without a division, a box with overlap of a simple fraction is decided exactly.
        found = shared > overlap * (both - shared)
        found &= (start + within)[:, None] < other + within
        if labels is None:
            return found
        return found & (part(labels, start)[..., None] == part(labels, other)[..., None, :])

    def decided(number: _Number, stay: Array) -> Array:
        """Decides about a block, given which boxes before it stay."""
        start = jnp.minimum(number * size, count - size)  # the last block is no shorter

        def left(other: _Number, free: Array) -> Array:
            before = part(stay, other * size)[..., None]
            return free & ~(drops(other * size, start) & before).any(axis=-2)

        free = part(usable, start)
        if count > size:
            free = jax.lax.fori_loop(0, number, left, free)
        own = drops(start, start)

        # Each pass settles the boxes that only settled ones can drop; the first box is settled.
        def again(state: tuple[Array, Array]) -> tuple[Array, Array]:
            return free & ~(own & state[0][..., None]).any(axis=-2), state[0]

        found, _ = jax.lax.while_loop(
            lambda state: (state[0] != state[1]).any(), again, (free, ~free)
        )
        return jax.lax.dynamic_update_slice_in_dim(stay, found, start, axis=-1)

    stay = jnp.zeros_like(usable)
    if count > size:
        blocks = -(-usable.sum(axis=-1, dtype=jnp.int32).max() // size)
        stay = jax.lax.fori_loop(0, blocks, decided, stay)
    else:
        stay = decided(0, stay)
    places = jnp.arange(count, dtype=jnp.int32)
    _, first = jax.lax.top_k(jnp.where(stay, -places, -count), min(keep, count))
    valid = _at(stay, first)
    found = Kept(jnp.where(valid, _at(order, first), 0), valid)
    widths = [*[(0, 0)] * len(batch), (0, keep - first.shape[-1])]
    return Kept(*(jnp.pad(one, widths) for one in found))


def _at(rows: Array, places: Int[Array, "... m"]) -> Array:
    """Takes rows ``[..., m, *d]`` of each image's values ``[..., n, *d]``."""
    axis = places.ndim - 1
    places = places.reshape(*places.shape, *[1] * (rows.ndim - places.ndim))
    return jnp.take_along_axis(rows, places, axis, mode="promise_in_bounds")


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
