"""Detectors at a constant false alarm rate: targets in radar images, without training.

A pixel is a detection if it exceeds a multiple of the level of the training cells around it: a
square ring, beyond guard cells that a target may cover. The multiplier follows from the rate of
false alarms and the clutter's law.
"""

import math
from functools import lru_cache, partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import ndimage

from jaxatr.scenes.clutter import Clutter, multipliers
from jaxatr.typing import Array, Bool, Float, Int, Shaped

_STRIP = 64  # rows whose counts stay in a core's cache


class Cfar(NamedTuple):
    """The settings of a detector.

    Attributes:
      rate: of false alarms a pixel.
      method: the level of the training cells: ``"mean"`` of the intensity (cell averaging),
        ``"log_mean"``, the mean in log amplitude, which a few bright cells hardly raise, or
        ``"order"``, an order statistic, which they do not raise.
      guard: cells left out on every side.
      train: width of the ring of training cells beyond.
      clutter: the law, such as :func:`~jaxatr.scenes.clutter.fitted` returns.
      order: which order statistic, as a share of the training cells.
    """

    rate: float = 1e-5
    method: Literal["mean", "log_mean", "order"] = "mean"
    guard: int = 4
    train: int = 5
    clutter: Clutter = Clutter()
    order: float = 0.75

    @property
    def cells(self) -> int:
        """Number of training cells of a pixel away from the image's edges."""
        return (2 * (self.guard + self.train) + 1) ** 2 - (2 * self.guard + 1) ** 2


class Exceedance(NamedTuple):
    """The pixels above their thresholds.

    Attributes:
      mask: ``[h, w]``, whether a pixel is a detection.
      contrast: ``[h, w]``, intensity over threshold; for order statistics, 0 where there is none.
    """

    mask: Bool[np.ndarray, "h w"]
    contrast: Float[np.ndarray, "h w"]


class Found(NamedTuple):
    """Groups of detections, from top to bottom.

    Attributes:
      boxes: ``[n, 4]``: x0, y0, x1, y1.
      scores: ``[n]``, the largest contrast of each.
      pixels: ``[n]``, number of detections of each.
    """

    boxes: Float[np.ndarray, "n 4"]
    scores: Float[np.ndarray, " n"]
    pixels: Int[np.ndarray, " n"]


def exceedance(intensity: Shaped[np.ndarray, "h w"], settings: Cfar = Cfar()) -> Exceedance:  # noqa: B008
    """Compares every pixel with its threshold.

    Near the image's edges and missing values, the multiplier is that of the fewer training cells.

    Args:
      intensity: squared amplitude; NaN where there is no data. A logarithm of 0 is that of the
        smallest number.
      settings: of the detector.

    Raises:
      ValueError: a setting is out of range.
    """
    _check(settings)
    values = np.asarray(intensity, np.float32)
    known = np.isfinite(values)
    complete = bool(known.all())
    reach = settings.guard + settings.train
    usable = None if complete else known
    counts = _edge_counts(values.shape, settings.guard, reach)
    table, ranks = _table(settings)
    if settings.method == "order":
        mask = _exceeds_order(values, usable, counts, table, ranks, settings.guard, reach)
        found = np.array(mask)
        contrast = np.zeros(values.shape, np.float32)
        y, x = np.nonzero(found)
        contrast[y, x] = _contrast_of_order(values, (y, x), (table, ranks), settings.guard, reach)
        return Exceedance(found, contrast)
    logarithm = settings.method == "log_mean"
    mask, contrast = _exceeds_mean(
        values, usable, counts, table, settings.guard, reach, logarithm=logarithm
    )
    return Exceedance(np.asarray(mask), np.asarray(contrast))


def grouped(found: Exceedance, *, gap: int = 0, least: int = 1) -> Found:
    """Groups detections into boxes, by 8-connectivity.

    Args:
      found: the pixels above their thresholds.
      gap: number of pixels without a detection that a group may have between two of its own.
      least: the least number of detections of a group.
    """
    y, x = np.nonzero(found.mask)
    groups = _groups(found.mask, y, x, gap)
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    pixels = np.diff(starts, append=len(order))
    if not len(starts):
        return Found(np.zeros((0, 4)), np.zeros(0), pixels)
    y, x = y[order], x[order]
    low, high = np.minimum.reduceat, np.maximum.reduceat
    boxes = np.stack([low(x, starts), low(y, starts), high(x, starts) + 1, high(y, starts) + 1], 1)
    scores = high(found.contrast[y, x], starts).astype(float)
    stay = pixels >= least
    return Found(boxes[stay].astype(float), scores[stay], pixels[stay])


def _groups(
    mask: Bool[np.ndarray, "h w"],
    y: Int[np.ndarray, " n"],
    x: Int[np.ndarray, " n"],
    gap: int,
) -> Int[np.ndarray, " n"]:
    """Returns the group of each detection, numbered by their first ones from top to bottom."""
    if gap:
        # Every detection reaches right and down, so that those across the gap meet in the image.
        mask = ndimage.maximum_filter(mask, gap + 1, mode="constant", origin=gap // 2)
    groups = np.zeros(mask.shape, np.int32)
    ndimage.label(mask, np.ones((3, 3)), groups)
    return groups[y, x] - 1


def _check(settings: Cfar) -> None:
    if settings.method not in ("mean", "log_mean", "order"):
        raise ValueError(f"method: got {settings.method!r}, wanted mean, log_mean or order")
    if not 0 < settings.rate < 1:
        raise ValueError(f"rate: got {settings.rate}, wanted a rate of false alarms in (0, 1)")
    if not 0 < settings.order <= 1:
        raise ValueError(f"order: got {settings.order}, wanted a share of the cells in (0, 1]")
    if settings.guard < 0 or settings.train < 1:
        raise ValueError(
            f"got guard={settings.guard} and train={settings.train}, wanted at least 0 and 1 cells"
        )
    looks, shape = settings.clutter
    if not (0 < looks < math.inf and shape > 0):
        raise ValueError(f"clutter: got {settings.clutter}, wanted positive looks and shape")


@lru_cache(maxsize=16)
def _table(settings: Cfar) -> tuple[np.ndarray, np.ndarray]:
    """Returns multipliers and ranks by the number of training cells."""
    cells = settings.cells
    found = multipliers(settings.method, cells, settings.rate, settings.clutter, settings.order)
    ranks = np.ceil(settings.order * np.arange(cells + 1)).astype(np.int32)
    return found.astype(np.float32), ranks


def _edge_counts(shape: tuple[int, ...], guard: int, reach: int) -> tuple[np.ndarray, ...]:
    """Returns how many rows and columns of an image are within reach, and among the guard cells."""
    return tuple(
        np.minimum(np.arange(length) + far, length - 1) - np.maximum(np.arange(length) - far, 0) + 1
        for length in shape
        for far in (reach, guard)
    )


@partial(jax.jit, static_argnames=("guard", "reach", "logarithm"))
def _exceeds_mean(
    values: Float[Array, "h w"],
    usable: Bool[Array, "h w"] | None,
    counts: tuple[Array, ...],
    table: Float[Array, " n"],
    guard: int,
    reach: int,
    *,
    logarithm: bool,
) -> tuple[Bool[Array, "h w"], Float[Array, "h w"]]:
    own = jnp.log(jnp.maximum(values, jnp.finfo(jnp.float32).tiny)) if logarithm else values
    number = _cells(usable, counts, guard, reach)
    total = _ring_sum(own if usable is None else jnp.where(usable, own, 0), guard, reach)
    factor = table[number]
    level = jnp.where(number > 0, total / number.astype(jnp.float32), 1)
    threshold = factor * (jnp.exp(level) if logarithm else level)
    return values > threshold, values / threshold


def _cells(
    usable: Bool[Array, "h w"] | None, counts: tuple[Array, ...], guard: int, reach: int
) -> Int[Array, "h w"]:
    """Counts the training cells of every pixel."""
    if usable is not None:
        return _ring_sum(usable.astype(jnp.float32), guard, reach).astype(jnp.int32)
    rows, inner_rows, columns, inner_columns = counts
    return rows[:, None] * columns - inner_rows[:, None] * inner_columns


def _ring_sum(values: Float[Array, "h w"], guard: int, reach: int) -> Float[Array, "h w"]:
    """Sums the training cells of every pixel; beyond the edges they are 0.

    The ring is the sum of four bars, not a square less a square: a bright target among the guard
    cells would take the digits of the clutter.
    """
    height, width = values.shape
    train = reach - guard
    padded = jnp.pad(values, reach)
    rows = _running_sum(_running_sum(padded, 2 * reach + 1, 1), train, 0)
    above, below = rows[:height], rows[reach + guard + 1 :]
    columns = _running_sum(_running_sum(padded[train:-train], 2 * guard + 1, 0), train, 1)
    left, right = columns[:, :width], columns[:, reach + guard + 1 :]
    return above + below + left + right


def _running_sum(values: Float[Array, "h w"], length: int, axis: int) -> Float[Array, "y x"]:
    """Sums runs of ``length`` values, by sums of runs of powers of two.

    Differences of one cumulative sum would lose digits along a large image.
    """
    size = values.shape[axis] - length + 1
    shape = tuple(size if number == axis else n for number, n in enumerate(values.shape))
    total, run, done = jnp.zeros(shape, values.dtype), 1, 0
    while True:
        if length & run:
            total += jax.lax.slice_in_dim(values, done, done + size, axis=axis)
            done += run
        if done == length:
            return total
        end = values.shape[axis]
        values = jax.lax.slice_in_dim(values, 0, end - run, axis=axis) + jax.lax.slice_in_dim(
            values, run, end, axis=axis
        )
        run *= 2


@partial(jax.jit, static_argnames=("guard", "reach"))
def _exceeds_order(
    values: Float[Array, "h w"],
    usable: Bool[Array, "h w"] | None,
    counts: tuple[Array, ...],
    table: Float[Array, " n"],
    ranks: Int[Array, " n"],
    guard: int,
    reach: int,
) -> Bool[Array, "h w"]:
    """Counts the training cells below a pixel over the multiplier, which needs no sorting.

    A pixel exceeds a multiple of the k-th smallest cell just if k cells or more are below the
    pixel's share.
    """
    height, width = values.shape
    number = _cells(usable, counts, guard, reach)
    share = values / table[number]
    if usable is not None:
        values = jnp.where(usable, values, jnp.inf)
        share = jnp.where(usable, share, -jnp.inf)
    strips = -(-height // _STRIP)
    more = strips * _STRIP - height
    padded = jnp.pad(values, ((reach, reach + more), (reach, reach)), constant_values=jnp.inf)
    shares = jnp.pad(share, ((0, more), (0, 0))).reshape(strips, _STRIP, width)

    def strip(place: tuple[Array, Array]) -> Int[Array, "s w"]:
        first, share = place
        near = jax.lax.dynamic_slice_in_dim(padded, first, _STRIP + 2 * reach, axis=0)

        def row(y: Array, below: Int[Array, "s w"]) -> Int[Array, "s w"]:
            lines = jax.lax.dynamic_slice_in_dim(near, y, _STRIP, axis=0)
            inner = jnp.abs(y - reach) <= guard
            for x in range(2 * reach + 1):
                less = (lines[:, x : x + width] < share).astype(jnp.int32)
                below += jnp.where(inner, 0, less) if abs(x - reach) <= guard else less
            return below

        return jax.lax.fori_loop(0, 2 * reach + 1, row, jnp.zeros((_STRIP, width), jnp.int32))

    below = jax.lax.map(strip, (jnp.arange(strips) * _STRIP, shares))
    return (number > 0) & (below.reshape(-1, width)[:height] >= ranks[number])


def _contrast_of_order(
    values: Float[np.ndarray, "h w"],
    at: tuple[np.ndarray, np.ndarray],
    table: tuple[np.ndarray, np.ndarray],
    guard: int,
    reach: int,
) -> Float[np.ndarray, " n"]:
    """Divides detections by their thresholds, from their sorted training cells."""
    far = np.arange(-reach, reach + 1)
    dy, dx = np.meshgrid(far, far, indexing="ij")
    ring = np.maximum(abs(dy), abs(dx)) > guard
    padded = np.pad(values, reach, constant_values=np.nan)
    found = np.empty(len(at[0]), np.float32)
    for start in range(0, len(found), 4096):
        part = slice(start, start + 4096)
        y, x = (axis[part, None] + reach for axis in at)
        cells = np.sort(padded[y + dy[ring], x + dx[ring]], axis=1)  # NaN comes last
        number = np.isfinite(cells).sum(axis=1)
        multiplier, ranks = (column[number] for column in table)
        level = np.take_along_axis(cells, ranks[:, None] - 1, axis=1)[:, 0]
        with np.errstate(divide="ignore"):
            found[part] = values[at[0][part], at[1][part]] / (multiplier * level)
    return found
