"""Evaluates a network on batches of masked copies of an image, for RISE, LIME and occlusion."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from jaxatr.explain.inputs import Function
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
    keep = keep[..., None]
    copies = (keep * image + (1 - keep) * hidden).astype(image.dtype)
    logits = predict(copies)
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    return jax.nn.softmax(logits, axis=-1)[:, target]


def weighted_sum(
    weights: Float[ArrayLike, " m"], masks: Float[Array, "m h w"]
) -> Float[Array, "h w"]:
    """Computes the weighted sum of masks."""
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
