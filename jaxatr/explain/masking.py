"""Evaluates a network on batches of masked copies of an image, for RISE, LIME and occlusion."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from jaxatr.explain.inputs import Function
from jaxatr.losses.inputs import at_least_float32
from jaxatr.typing import Array, ArrayLike, Float, Int


@jax.jit
def probabilities(
    predict: Function,
    image: Float[Array, "h w c"],
    hidden: Float[ArrayLike, "h w c"],
    target: Int[Array, ""],
    keep: Float[Array, "m h w"],
) -> Float[Array, " m"]:
    """Computes the target's softmax probability on each masked copy of an image.

    Args:
      predict: maps images to logits.
      image: ``[h, w, c]``.
      hidden: ``[h, w, c]``, the image that replaces masked pixels.
      target: a class.
      keep: ``[m, h, w]``, the masks: the weight of the image against the replacement.
    """
    shown, hidden = at_least_float32(image)[None], at_least_float32(hidden)[None]
    keep = keep[..., None].astype(shown.dtype)
    copies = (keep * shown + (1 - keep) * hidden).astype(image.dtype)
    return jax.nn.softmax(at_least_float32(predict(copies)), axis=-1)[:, target]


def weighted_sum(
    weights: Float[ArrayLike, " m"], masks: Float[Array, "m h w"]
) -> Float[Array, "h w"]:
    """Computes the weighted sum of masks."""
    masks = masks.astype(weights.dtype)
    return jnp.tensordot(weights, masks, 1, precision=jax.lax.Precision.HIGHEST)


def batches(count: int, size: int) -> Iterator[Int[np.ndarray, " m"]]:
    """Yields 0, 1, 2 … in batches of equal size; the last batch may run past ``count``."""
    size = min(size, count)
    for start in range(0, count, size):
        yield np.arange(start, start + size)


def bar(total: int, name: str, *, progress: bool) -> tqdm:
    """Creates a progress bar of masked copies, shown only at a terminal and if requested."""
    return tqdm(
        total=total,
        desc=name,
        unit="copy",
        leave=False,
        dynamic_ncols=True,
        disable=None if progress else True,
    )
