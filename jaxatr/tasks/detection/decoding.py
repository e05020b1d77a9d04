"""From the network's maps to a fixed number of boxes, jitted, and from tiles to scenes."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.data.scene_image import SceneImage, scene_of
from jaxatr.models import DetectionOutput
from jaxatr.models.detector import MULTIPLE
from jaxatr.scenes import boxes as geometry
from jaxatr.scenes.suppression import suppress
from jaxatr.scenes.tiles import Window, merge, windows
from jaxatr.tasks.detection.assignment import boxes_at
from jaxatr.typing import Array, ArrayLike, Bool, Float, Shaped

_CANDIDATES = 4  # boxes that enter the suppression, for each that may stay


class Decoded(NamedTuple):
    """The targets of a batch of tiles, by descending score.

    Attributes:
      boxes: ``[b, n, 4]``, in pixels of the tile.
      scores: ``[b, n]``, probability of a target.
      open_logits: ``[b, n, k]``, of the binary classifiers.
      valid: ``[b, n]``, whether there is such a target.
    """

    boxes: Float[ArrayLike, "b n 4"]
    scores: Float[ArrayLike, "b n"]
    open_logits: Float[ArrayLike, "b n k"]
    valid: Bool[ArrayLike, "b n"]


def decode(out: DetectionOutput, *, most: int, overlap: float) -> Decoded:
    """Finds the peaks of the target's map, reads the boxes there, and suppresses overlapping ones.

    Args:
      out: the network's maps.
      most: n, the largest number of targets in a tile.
      overlap: the IoU above which the less certain of two targets is dropped, whatever its class.
    """
    target, (count, height, width) = out.target, out.target.shape
    around = nn.max_pool(target[..., None], (3, 3), padding="SAME")[..., 0]
    peaks = jnp.where(target == around, target, -jnp.inf).reshape(count, height * width)
    logits, at = jax.lax.top_k(peaks, min(_CANDIDATES * most, height * width))
    boxes = _rows(boxes_at(out.distances).reshape(count, height * width, 4), at)
    classes = out.open_logits.reshape(count, height * width, out.open_logits.shape[-1])
    scores = jnp.where(logits > -jnp.inf, jax.nn.sigmoid(logits), jnp.nan)
    indices, valid = suppress(boxes, scores, keep=most, overlap=overlap)
    found = (_rows(boxes, indices), _rows(scores, indices), _rows(_rows(classes, at), indices))
    boxes, scores, classes = (
        jnp.where(valid.reshape(*valid.shape, *[1] * (each.ndim - 2)), each, 0) for each in found
    )
    return Decoded(boxes, scores, classes, valid)


def _rows(values: Array, indices: Array) -> Array:
    """Takes rows ``[b, m, ...]`` of each image's values ``[b, n, ...]``."""
    return jax.vmap(lambda each, at: each[at])(values, indices)


class Found(NamedTuple):
    """The targets of one scene, by descending score.

    Attributes:
      boxes: ``[n, 4]``, in pixels of the scene.
      scores: ``[n]``, probability of a target.
      open_logits: ``[n, k]``, of the binary classifiers.
    """

    boxes: Float[np.ndarray, "n 4"]
    scores: Float[np.ndarray, " n"]
    open_logits: Float[np.ndarray, "n k"]


class Strip(NamedTuple):
    """One of the strips that are searched by themselves, of scenes too large for one worker.

    Attributes:
      number: 0 to ``count`` - 1, from the top.
      count: number of strips of a scene.
    """

    number: int = 0
    count: int = 1


WHOLE = Strip()
"""All of a scene."""


class Tiling(NamedTuple):
    """How scenes are cut into tiles.

    Attributes:
      side: side of the tiles in pixels; a scene that is no longer is one tile.
      shared: pixels that neighbouring tiles share.
      fill: value of each channel beyond the edge of a scene.
    """

    side: int
    shared: int
    fill: Shaped[np.ndarray, " c"]

    def windows(self, height: int, width: int) -> list[Window]:
        """Returns the windows of a scene.

        Args:
          height: rows of the scene.
          width: columns of the scene.
        """
        if max(height, width) > self.side:
            return list(windows(height, width, self.side, self.shared))
        rows, columns = (-(-side // MULTIPLE) * MULTIPLE for side in (height, width))
        return [Window(0, 0, columns, rows)]

    def strip(self, tiles: list[Window], strip: Strip) -> tuple[list[Window], tuple[float, float]]:
        """Returns the tiles to search for a strip, and between which rows its targets' middles are.

        A strip ends in the middle of what two rows of tiles share. The next row of tiles on each
        side is searched as well, so that a target there is seen as in the whole scene; every target
        no longer than a tile is of exactly one strip.

        Args:
          tiles: the windows of a scene, see :meth:`windows`.
          strip: which strip; it is empty if there are fewer rows of tiles than strips.
        """
        tops, side = sorted({tile.y0 for tile in tiles}), tiles[0].y1 - tiles[0].y0
        first, end = (len(tops) * (strip.number + i) // strip.count for i in (0, 1))
        middles = [(above + side + below) / 2 for above, below in itertools.pairwise(tops)]
        edges = [-math.inf, *middles, math.inf]
        seen = {*tops[max(0, first - 1) : end + 1]} if first < end else set()
        return [tile for tile in tiles if tile.y0 in seen], (edges[first], edges[end])

    def cut(self, scene: SceneImage, window: Window) -> Shaped[np.ndarray, "y x c"]:
        """Reads a tile of a scene."""
        ends = (min(window.y1, scene.height), min(window.x1, scene.width))
        part = scene.pixels(slice(window.y0, ends[0]), slice(window.x0, ends[1]))
        shape = (window.y1 - window.y0, window.x1 - window.x0)
        if part.shape[:2] == shape:
            return part
        tile = np.empty((*shape, part.shape[2]), part.dtype)
        tile[:] = self.fill
        tile[: part.shape[0], : part.shape[1]] = part
        return tile

    def joined(
        self, tiles: list[Window], found: list[Found], size: tuple[int, int], overlap: float
    ) -> Found:
        """Joins what was found in the tiles of a scene of ``size`` (rows, columns)."""
        height, width = size
        one = found[0]
        if len(tiles) > 1:
            merged = merge(
                tiles,
                [each.boxes for each in found],
                [each.scores for each in found],
                size=size,
                overlap=overlap,
            )
            logits = np.concatenate([each.open_logits for each in found])[merged.indices]
            one = Found(merged.boxes.astype(np.float32), merged.scores.astype(np.float32), logits)
        boxes = np.asarray(geometry.clipped(one.boxes, width, height))
        inside = geometry.area(boxes) > 0
        return Found(boxes[inside], one.scores[inside], one.open_logits[inside])


def of_tile(decoded: Decoded, row: int, least: float) -> Found:
    """Returns the targets of one tile of a batch with at least a score."""
    chosen = np.asarray(decoded.valid[row]) & (np.asarray(decoded.scores[row]) >= least)
    fields = (decoded.boxes[row], decoded.scores[row], decoded.open_logits[row])
    return Found(*(np.asarray(field)[chosen] for field in fields))


def found_in(
    scenes: Iterable[np.ndarray | SceneImage],
    tiling: Tiling,
    infer: Callable[[Iterable[dict[str, np.ndarray]]], Iterator[tuple[Any, Decoded]]],
    *,
    batch_size: int,
    overlap: float,
    least: float,
    strip: Strip = WHOLE,
) -> Iterator[Found]:
    """Yields the targets of each scene, in order.

    Args:
      scenes: images ``[h, w, c]``, in raw units, or open ones, which are read tile by tile.
      tiling: how they are cut.
      infer: maps batches, with ``image``, to what was found in them; see
        :func:`jaxatr.parallel.map_batches`.
      batch_size: tiles per batch.
      overlap: the IoU above which the less certain of two targets is dropped.
      least: the least score.
      strip: which strip of each scene is searched; none of them may be empty.
    """
    pending: list[tuple[tuple[int, int], list[Window], tuple[float, float]]] = []

    def batches() -> Iterator[dict[str, np.ndarray]]:
        tiles: list[np.ndarray] = []
        for image in scenes:
            scene = image if isinstance(image, SceneImage) else scene_of(image)
            size = (scene.height, scene.width)
            cuts, rows = tiling.strip(tiling.windows(*size), strip)
            pending.append((size, cuts, rows))
            for window in cuts:
                tile = np.array(tiling.cut(scene, window))  # the next scene may be read there
                if tiles and (tile.shape != tiles[0].shape or len(tiles) == batch_size):
                    yield {"image": np.stack(tiles)}
                    tiles = []
                tiles.append(tile)
        if tiles:
            yield {"image": np.stack(tiles)}

    collected: list[Found] = []
    for batch, decoded in infer(batches()):
        collected += [of_tile(decoded, row, least) for row in range(len(batch["image"]))]
        while pending and len(collected) >= len(pending[0][1]):
            size, cuts, rows = pending.pop(0)
            yield _between(rows, tiling.joined(cuts, collected[: len(cuts)], size, overlap))
            del collected[: len(cuts)]


def _between(rows: tuple[float, float], found: Found) -> Found:
    """Returns the targets whose middle is in some rows of a scene."""
    middle = (found.boxes[:, 1] + found.boxes[:, 3]) / 2
    mine = (rows[0] <= middle) & (middle < rows[1])
    return found if mine.all() else Found(*(field[mine] for field in found))
