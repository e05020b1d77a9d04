"""Windows of an image of any size, and the boxes found in them as boxes of the whole image."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from jaxatr.scenes import boxes as geometry
from jaxatr.scenes.suppression import kept
from jaxatr.typing import Bool, Float, Int, Shaped


class Window(NamedTuple):
    """A part of an image, in whole pixels; it may extend beyond an image that is smaller."""

    x0: int
    y0: int
    x1: int
    y1: int

    def cut(self, image: Shaped[np.ndarray, "h w c"]) -> Shaped[np.ndarray, "y x c"]:
        """Cuts the window out of an image; beyond the image, it is padded with zeros."""
        part = image[self.y0 : self.y1, self.x0 : self.x1]
        missing = (self.y1 - self.y0 - part.shape[0], self.x1 - self.x0 - part.shape[1])
        return np.pad(part, [(0, gap) for gap in missing] + [(0, 0)]) if any(missing) else part


def windows(height: int, width: int, side: int, overlap: int) -> Iterator[Window]:
    """Yields the square windows that cover an image, row by row.

    Neighbours share ``overlap`` pixels or more: the last window of a row or a column ends where the
    image does. An image shorter than ``side`` has one window, which extends beyond it.

    Args:
      height: of the image in pixels.
      width: of the image in pixels.
      side: of the windows in pixels.
      overlap: a target up to this size is seen whole by one window at least.

    Raises:
      ValueError: a size is below 1, or the overlap is not below the side.

    >>> [(window.x0, window.x1) for window in windows(4, 9, side=4, overlap=1)]
    [(0, 4), (3, 7), (5, 9)]
    """
    if min(height, width, side) < 1:
        raise ValueError(
            f"got tiles of {side} pixels in an image of {height}x{width}, wanted at least 1"
        )
    if not 0 <= overlap < side:
        raise ValueError(f"overlap: got {overlap}, wanted 0 or more, and less than {side} pixels")
    for y0, x0 in itertools.product(*(_starts(size, side, overlap) for size in (height, width))):
        yield Window(x0, y0, x0 + side, y0 + side)


def _starts(length: int, side: int, overlap: int) -> list[int]:
    last = max(length - side, 0)
    return [*range(0, last, side - overlap), last]


class Merged(NamedTuple):
    """Boxes of a whole image, by descending score.

    Attributes:
      boxes: ``[m, 4]``, in pixels of the image.
      scores: ``[m]``; of a joined box, the highest of its parts.
      indices: ``[m]``, the row of the box, or of the part with the highest score, in all tiles'
        boxes one after the other. It leads to a box's label and other columns.
    """

    boxes: Float[np.ndarray, "m 4"]
    scores: Float[np.ndarray, " m"]
    indices: Int[np.ndarray, " m"]


def merge(
    tiles: Sequence[Window],
    boxes: Sequence[Shaped[np.ndarray, "_ 4"]],
    scores: Sequence[Shaped[np.ndarray, " _"]],
    labels: Sequence[Shaped[np.ndarray, " _"]] | None = None,
    *,
    size: tuple[int, int],
    overlap: float = 0.5,
    seam: float = 2.0,
    agreement: float = 0.5,
) -> Merged:
    """Merges what was found in the windows of an image, so that a target counts once.

    A box that ends at its window's edge is *cut* where the image goes on. Two boxes of different
    windows are of the same target if their parts within both windows agree. Cut boxes of the same
    target are joined: the result is the smallest box around them. They are dropped if another
    window saw the target whole. At last, overlapping boxes are suppressed.

    Args:
      tiles: the windows, such as those of :func:`windows`.
      boxes: the boxes of each window, in pixels of the window.
      scores: their scores.
      labels: their classes, of which each is merged alone; None to merge over classes.
      size: height and width of the image.
      overlap: the IoU above which :func:`~jaxatr.scenes.suppression.suppress` drops a box.
      seam: how close in pixels to its window's edge a box that is cut ends.
      agreement: the least IoU of the parts within both windows; parts whose edges differ by no more
        than ``seam`` pixels also agree.
    """
    counts = [len(part) for part in boxes]
    bounds = np.repeat(np.array(tiles, float).reshape(-1, 4), counts, axis=0)
    own = np.concatenate([np.zeros((0, 4)), *boxes]).astype(float)
    own += np.tile(bounds[:, :2], 2)
    score = np.concatenate([np.zeros(0), *scores]).astype(float)
    label = None if labels is None else np.concatenate([np.zeros(0, int), *labels]).astype(int)
    usable = np.isfinite(own).all(axis=1) & (geometry.area(own) > 0) & ~np.isnan(score)
    cut = usable & _cut(own, bounds, size, seam).any(axis=1)
    whole, parts = np.flatnonzero(usable & ~cut), np.flatnonzero(cut)

    found, indices = [own[whole]], [whole]
    same_target = partial(
        _same_target, boxes=own, bounds=bounds, labels=label, seam=seam, agreement=agreement
    )
    for members in _split_targets(parts, whole, same_target):
        found.append(np.asarray(geometry.hull(own[members].reshape(-1, 2)))[None])
        indices.append(members[[np.argmax(score[members])]])
    every, index = np.concatenate(found), np.concatenate(indices)
    order = np.argsort(index, kind="stable")  # ties go to the earlier box, as within a window
    every, index = every[order], index[order]
    # Ranks have the scores' order in float32 too, also that of an infinite contrast.
    ranks = np.unique(score[index], return_inverse=True)[1]
    stay = kept(every, ranks, None if label is None else label[index], overlap=overlap)
    return Merged(every[stay], score[index[stay]], index[stay])


def _split_targets(
    parts: Int[np.ndarray, " p"],
    whole: Int[np.ndarray, " w"],
    same_target: Callable[[int, np.ndarray], np.ndarray],
) -> list[Int[np.ndarray, " _"]]:
    """Groups cut boxes by their targets, without the targets that a window saw whole.

    Args:
      parts: rows of the cut boxes.
      whole: rows of the other boxes.
      same_target: says which of some rows are of the same target as a row.
    """
    pairs: list[tuple[int, int]] = []
    seen_whole = np.zeros(len(parts), bool)
    for number, part in enumerate(parts.tolist()):
        seen_whole[number] = same_target(part, whole).any()
        alike = same_target(part, parts[number + 1 :])
        pairs += [(number, number + 1 + int(other)) for other in np.flatnonzero(alike)]
    rows, columns = np.array(pairs, int).reshape(-1, 2).T
    links = coo_array((np.ones(len(pairs)), (rows, columns)), shape=(len(parts), len(parts)))
    groups, group = connected_components(links, directed=False) if len(parts) else (0, parts)
    return [parts[group == one] for one in range(groups) if not seen_whole[group == one].any()]


def _cut(
    boxes: Float[np.ndarray, "n 4"],
    bounds: Float[np.ndarray, "n 4"],
    size: tuple[int, int],
    seam: float,
) -> Bool[np.ndarray, "n 4"]:
    """Says at which edges a box ends with its window although the image goes on."""
    height, width = size
    inside = np.column_stack([bounds[:, :2] > 0, bounds[:, 2:] < (width, height)])
    low, high = boxes[:, :2] - bounds[:, :2] <= seam, bounds[:, 2:] - boxes[:, 2:] <= seam
    return np.column_stack([low, high]) & inside


def _same_target(
    one: int,
    others: Int[np.ndarray, " m"],
    boxes: Float[np.ndarray, "n 4"],
    bounds: Float[np.ndarray, "n 4"],
    labels: Int[np.ndarray, " n"] | None,
    seam: float,
    agreement: float,
) -> Bool[np.ndarray, " m"]:
    """Says which boxes of other windows agree with a box within both windows."""
    # Of windows that hardly overlap or only touch, a strip along the seam, in which cut boxes end,
    # stands for the common part: a box that reaches it fills it, and extents along it are compared.
    low = np.maximum(bounds[one, :2], bounds[others, :2])
    high = np.minimum(bounds[one, 2:], bounds[others, 2:])
    meet = (high >= low).all(axis=1) & (bounds[one] != bounds[others]).any(axis=1)
    thin = high - low <= 2 * seam
    strip = (seam + 1e-3) * thin
    common = np.concatenate([low - strip, high + strip], axis=1)
    own, their = (_within(boxes[rows], common, thin) for rows in (one, others))
    close = (np.abs(own - their) <= seam).all(axis=1)
    close &= (geometry.area(own) > 0) & (geometry.area(their) > 0)
    alike = meet & (close | (geometry.iou(own, their) >= agreement))
    return alike if labels is None else alike & (labels[others] == labels[one])


def _within(
    boxes: Float[np.ndarray, "... 4"],
    common: Float[np.ndarray, "m 4"],
    thin: Bool[np.ndarray, "m 2"],
) -> Float[np.ndarray, "m 4"]:
    """Clips boxes to a common part; across a strip, a box that reaches it fills it."""
    low = np.maximum(boxes[..., :2], common[:, :2])
    high = np.minimum(boxes[..., 2:], common[:, 2:])
    fills = thin & (high > low)
    low, high = np.where(fills, common[:, :2], low), np.where(fills, common[:, 2:], high)
    return np.concatenate([low, high], axis=1)
