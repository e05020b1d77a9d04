"""Occlusion: the drop of the target's probability when a window of the image is hidden."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.explain.inputs import (
    Baseline,
    Function,
    as_argument,
    check_at_least,
    checked_images,
    one_baseline,
    target_classes,
)
from jaxatr.explain.masking import bar, batches, probabilities, weighted_sum
from jaxatr.explain.method import Method
from jaxatr.explain.scaling import finished
from jaxatr.typing import Array, ArrayLike, Float, Int


def occlusion(
    predict: Function,
    images: Float[ArrayLike, "b h w c"],
    *,
    targets: Int[ArrayLike, " b"] | None = None,
    window: int | tuple[int, int] = 8,
    stride: int | tuple[int, int] = 4,
    baseline: Baseline = 0.0,
    batch_size: int = 100,
    raw: bool = False,
    progress: bool = False,
) -> Float[Array, "b h w"]:
    """Computes the drop of the target's probability under a window (Zeiler and Fergus 2014).

    The window slides over the image by the stride; the last window of a row or column is aligned to
    the image's edge. A pixel's value is the mean drop over the windows that cover it, which is
    negative if hiding the pixel makes the target more probable.

    Args:
      predict: maps images to logits ``[b, k]``.
      images: ``[b, h, w, c]``.
      targets: ``[b]``, classes; None for the predicted classes.
      window: size in pixels, one number or ``(rows, columns)``. The defaults of window and stride
        are for chips of 32 to 64 pixels.
      stride: step in pixels, one number or ``(rows, columns)``; at most the window's size, so that
        every pixel is covered.
      baseline: replacement for the window's pixels, a number, ``[c]`` or ``[h, w, c]`` in the
        images' unit. The authors use gray.
      batch_size: number of occluded copies per batch, all of one image; it bounds the memory.
      raw: return the signed drops instead of scaling to [0, 1].
      progress: show a progress bar at a terminal.

    Raises:
      ValueError: an argument is invalid.
    """
    check_at_least(1, batch_size=batch_size)
    images, predict = checked_images(images), as_argument(predict)
    hidden, shape = one_baseline(baseline, images), images.shape[1:3]
    window, stride = ((v, v) if isinstance(v, int) else v for v in (window, stride))
    corners = _corners(shape, window, stride)
    targets = target_classes(predict, images, targets, batch_size)
    whole, all_seen = [], jnp.ones((1, *shape))
    for image, target in zip(images, targets, strict=True):
        whole.append(probabilities(predict, image, hidden, target, all_seen))
    cover, maps = jnp.zeros(shape), [jnp.zeros(shape)] * len(images)
    with bar(len(corners) * len(images), "occlusion", progress=progress) as shown:
        for numbers in batches(len(corners), batch_size):
            counted = numbers < len(corners)
            windows = _windows(corners[numbers * counted], shape, window)
            cover = cover + weighted_sum(counted.astype(cover.dtype), windows)
            for i, image in enumerate(images):
                case = image, hidden, targets[i], whole[i]
                maps[i] = _added(maps[i], predict, *case, windows, counted)
                jax.block_until_ready(maps[i])  # to bound memory by the batch size
                shown.update(counted.sum())
    return finished(jnp.stack(maps) / cover[None], raw=raw)


@jax.jit
def _added(total, predict, image, hidden, target, whole, windows, counted) -> Float[Array, "h w"]:
    left = probabilities(predict, image, hidden, target, 1 - windows)
    drops = jnp.where(counted, whole - left, 0)
    return total + weighted_sum(drops, windows).astype(total.dtype)


def _corners(
    shape: tuple[int, ...], window: tuple[int, int], stride: tuple[int, int]
) -> Int[np.ndarray, "n 2"]:
    """Computes the first row and column of each window."""
    firsts = []
    for name, side, size, step in zip(("rows", "columns"), shape, window, stride, strict=True):
        if not 1 <= size <= side:
            raise ValueError(f"window: got {size} {name}, wanted 1 to {side}, the image's")
        if not 1 <= step <= size:
            raise ValueError(f"stride: got {step} {name}, wanted 1 to {size}, the window's")
        firsts.append([*range(0, side - size, step), side - size])
    return np.stack(np.meshgrid(*firsts, indexing="ij"), axis=-1).reshape(-1, 2)


@partial(jax.jit, static_argnums=(1, 2))
def _windows(
    corners: Int[ArrayLike, "m 2"], shape: tuple[int, ...], window: tuple[int, int]
) -> Float[Array, "m h w"]:
    """Creates masks that are 1 in their window."""
    inside = []
    for axis, (side, size) in enumerate(zip(shape, window, strict=True)):
        after = jnp.arange(side)[None] - corners[:, axis, None]
        inside.append((after >= 0) & (after < size))
    return (inside[0][:, :, None] & inside[1][:, None, :]).astype(jnp.float32)


PART = Method("occlusion", "occlusion", partial(occlusion, raw=True), batching="copies")
