"""Cells and windows of chips and of a network's maps, in NumPy or, traced, in JAX."""

from typing import Any

import numpy as np

from jaxatr.typing import ArrayLike, Shaped


def mean_pool(maps: Shaped[ArrayLike, "n h w c"], factor: int) -> Any:
    """Averages cells of ``factor`` by ``factor`` pixels, in float32; what is left over is cut off.

    Args:
      maps: chips or maps.
      factor: at least 1, at most the smaller side.

    Raises:
      ValueError: ``factor`` is out of range.
    """
    n, h, w, c = maps.shape
    if not 1 <= factor <= min(h, w):
        raise ValueError(f"factor: got {factor}, wanted 1 to {min(h, w)}, the smaller side")
    rows, columns = h // factor, w // factor
    cells = maps[:, : rows * factor, : columns * factor]
    shape = (n, rows, factor, columns, factor, c)
    return cells.reshape(shape).mean(axis=(2, 4), dtype=np.float32)


def central(maps: Shaped[ArrayLike, "... h w c"], window: float) -> Any:
    """Cuts out the middle of maps.

    Args:
      maps: to be cut.
      window: share of each side that is kept, in (0, 1], to the nearest pixel, and at least one.

    Raises:
      ValueError: ``window`` is no such share.

    >>> central(np.zeros((8, 8, 3)), 0.75).shape
    (6, 6, 3)
    """
    if not 0 < window <= 1:
        raise ValueError(f"window: got {window}, wanted a share in (0, 1]")
    for axis in (-3, -2):
        side = maps.shape[axis]
        kept = max(1, round(window * side))
        if kept < side:
            start = (side - kept) // 2
            inside = slice(start, start + kept)
            maps = maps[..., inside, :] if axis == -2 else maps[..., inside, :, :]
    return maps
