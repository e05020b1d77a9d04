"""Targets of the heads: which places of the map train which box.

As in TTFNet (Liu et al. 2020), a box trains the places around its centre, weighted by a Gaussian of
its size; between boxes, the smaller one takes a place.
"""

from typing import NamedTuple

import jax.numpy as jnp

from jaxatr import openset
from jaxatr.models import STRIDE
from jaxatr.typing import Array, ArrayLike, Bool, Float, Int

UNKNOWN = openset.UNKNOWN
"""Label of a target of no known class."""

IGNORED = UNKNOWN - 1
"""Label of a box that is neither a target nor background."""

PADDING = UNKNOWN - 2
"""Label of no box."""

_SHARE = 0.54  # share of a box's side, around its centre, that trains it


class Assigned(NamedTuple):
    """The targets of one picture's places.

    Attributes:
      heat: ``[h, w]``, 1 at centres of targets, less around them, 0 elsewhere.
      ignored: ``[h, w]``, places of which nothing is learned about the target.
      owner: ``[h, w]``, row of the box that the place trains; 0 where the weight is 0.
      weight: ``[h, w]``, weight of the place in the losses of its box; a box's weights sum to 1.
    """

    heat: Float[Array, "h w"]
    ignored: Bool[Array, "h w"]
    owner: Int[Array, "h w"]
    weight: Float[Array, "h w"]


def assign(
    boxes: Float[ArrayLike, "m 4"], labels: Int[ArrayLike, " m"], height: int, width: int
) -> Assigned:
    """Assigns the boxes of a picture to the places of its map.

    Args:
      boxes: ``[m, 4]``, x0, y0, x1, y1 in pixels of the picture.
      labels: ``[m]``, known classes, :data:`UNKNOWN`, :data:`IGNORED` or :data:`PADDING`.
      height: h, rows of the map.
      width: w, columns of the map.
    """
    boxes, labels = jnp.asarray(boxes), jnp.asarray(labels)
    sides = jnp.maximum(boxes[:, 2:] - boxes[:, :2], 0)
    middle = (boxes[:, :2] + boxes[:, 2:]) / 2
    limits = jnp.array([[width, height]]) - 1
    cell = jnp.clip(jnp.floor(middle / STRIDE).astype(jnp.int32), 0, limits)
    radius = jnp.round(_SHARE * sides / (2 * STRIDE))
    spread = (2 * radius + 1) / 6

    def along(axis: int, length: int) -> Float[Array, "m length"]:
        off = jnp.arange(length)[None] - cell[:, axis : axis + 1]
        bell = jnp.exp(-(off**2) / (2 * spread[:, axis : axis + 1] ** 2))
        return jnp.where(jnp.abs(off) <= radius[:, axis : axis + 1], bell, 0)

    is_target = labels >= UNKNOWN
    bells = along(1, height)[:, :, None] * along(0, width)[:, None, :]
    bells = jnp.where(is_target[:, None, None], bells, 0)
    heat = jnp.max(bells, axis=0, initial=0)
    areas = jnp.where(bells > 0, (sides[:, 0] * sides[:, 1])[:, None, None], jnp.inf)
    owner = jnp.argmin(areas, axis=0).astype(jnp.int32)
    own = owner[None] == jnp.arange(len(labels))[:, None, None]
    weight = jnp.where(own, bells, 0)
    total = jnp.sum(weight, axis=(1, 2), keepdims=True)
    weight = jnp.sum(weight / jnp.where(total > 0, total, 1), axis=0)
    ignored = _inside(boxes, labels == IGNORED, height, width) & (heat == 0)
    return Assigned(heat, ignored, owner, weight)


def _inside(
    boxes: Float[Array, "m 4"], chosen: Bool[Array, " m"], height: int, width: int
) -> Bool[Array, "h w"]:
    """Says which places' pixels meet one of the chosen boxes."""

    def along(axis: int, length: int) -> Bool[Array, "m length"]:
        start = STRIDE * jnp.arange(length)[None]
        low, high = boxes[:, axis : axis + 1], boxes[:, axis + 2 : axis + 3]
        return (start < high) & (start + STRIDE > low) & chosen[:, None]

    # Whether any box has both the row and the column.
    return jnp.any(along(1, height)[:, :, None] & along(0, width)[:, None, :], axis=0)


def places(height: int, width: int) -> Float[Array, "h w 2"]:
    """Returns x and y of the middle of each place of a map, in pixels of the image."""
    x, y = (STRIDE * (jnp.arange(n, dtype=jnp.float32) + 0.5) for n in (width, height))
    return jnp.stack(jnp.broadcast_arrays(x[None, :], y[:, None]), axis=-1)


def boxes_at(distances: Float[ArrayLike, "*b h w 4"]) -> Float[Array, "*b h w 4"]:
    """Converts the heads' distances to boxes, in pixels of the image."""
    height, width = distances.shape[-3:-1]
    middle = jnp.broadcast_to(places(height, width), (*distances.shape[:-1], 2))
    return jnp.concatenate([middle - distances[..., :2], middle + distances[..., 2:]], axis=-1)
