"""Occlusion: how much of the target's probability goes when a window of the image does."""

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
    """Returns the drop of the target's probability under a window (Zeiler and Fergus 2014).

    The window goes over the image in steps of the stride, and the last one of a row or a column
    ends at the image's edge. A pixel's value is the mean drop over the windows that cover it; it is
    negative where hiding the pixel makes the target more probable.

    Args:
      predict: from images to logits ``[b, k]``.
      images: ``[b, h, w, c]``.
      targets: ``[b]``, classes; None for the predicted ones.
      window: pixels, of both sides or ``(rows, columns)``. The defaults of window and stride are
        for chips of 32 to 64 pixels.
      stride: pixels, likewise; at most the window, so that no pixel is left out.
      baseline: what is seen in the window, a number, ``[c]`` or ``[h, w, c]`` in the images' unit.
        The authors take gray.
      batch_size: occluded copies of one image at a time. Memory is that of so many images and
        masks, and of the forward pass of ``predict`` on them.
      raw: return the drops themselves, with their signs, not scaled to [0, 1].
      progress: show a bar at a terminal.

    Raises:
      ValueError: an argument does not fit.
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
            cover = cover + weighted_sum(counted.astype(np.float32), windows)
            for i, image in enumerate(images):
                case = image, hidden, targets[i], whole[i]
                maps[i] = _added(maps[i], predict, *case, windows, counted)
                jax.block_until_ready(maps[i])  # so that memory is what the batch size says
                shown.update(counted.sum())
    return finished(jnp.stack(maps) / cover, raw=raw)


@jax.jit
def _added(total, predict, image, hidden, target, whole, windows, counted) -> Float[Array, "h w"]:
    left = probabilities(predict, image, hidden, target, 1 - windows)
    return total + weighted_sum((whole - left) * counted, windows)


def _corners(
    shape: tuple[int, ...], window: tuple[int, int], stride: tuple[int, int]
) -> Int[np.ndarray, "n 2"]:
    """Returns the first row and column of each window."""
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
    """Returns masks that are 1 in their window."""
    inside = []
    for axis, (side, size) in enumerate(zip(shape, window, strict=True)):
        after = jnp.arange(side) - corners[:, axis, None]
        inside.append((after >= 0) & (after < size))
    return (inside[0][:, :, None] & inside[1][:, None, :]).astype(jnp.float32)


METHOD = Method("occlusion", "occlusion", partial(occlusion, raw=True), batching="copies")
