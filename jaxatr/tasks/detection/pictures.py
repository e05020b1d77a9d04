"""Pictures of one size, cut from scenes at random scales, alone or four in a mosaic."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from PIL import Image

from jaxatr.tasks.detection.assignment import IGNORED, PADDING
from jaxatr.typing import Float, Int, Shaped

_VISIBLE = 0.4  # share of a box that must be in the picture for it to be trained
_LEAST = 2.0  # pixels; of a box with a shorter side in the picture, nothing is learned
_MIDDLE = (0.3, 0.7)  # where a mosaic's four parts meet, as shares of the side


class Scene(NamedTuple):
    """A scene, or a part of one, with its boxes.

    Attributes:
      image: ``[h, w, c]``.
      boxes: ``[n, 4]``, x0, y0, x1, y1 in its pixels.
      labels: ``[n]``, labels of :mod:`jaxatr.tasks.detection.assignment`.
    """

    image: Shaped[np.ndarray, "h w c"]
    boxes: Float[np.ndarray, "n 4"]
    labels: Int[np.ndarray, " n"]


@dataclasses.dataclass(frozen=True)
class Pictures:
    """Draws pictures from scenes.

    Attributes:
      scene: returns the scene of a number.
      count: number of scenes.
      side: rows and columns of a picture.
      scales: least and greatest scale of a scene.
      mosaic: probability of a mosaic.
      aimed: probability that a part is cut around a box.
      flips: whether to flip left to right and top to bottom, each with probability 1/2.
      fill: value of each channel where the scene does not reach.
    """

    scene: Callable[[int], Scene]
    count: int
    side: int
    scales: tuple[float, float]
    mosaic: float
    aimed: float
    flips: tuple[bool, bool]
    fill: Shaped[np.ndarray, " c"]

    def draw(self, number: int, seed: tuple[int, ...]) -> Scene:
        """Draws a picture; it depends on its arguments only.

        Args:
          number: number of the scene, in a mosaic of the first of its four.
          seed: non-negative integers.
        """
        rng = np.random.default_rng(np.random.SeedSequence(seed))
        if rng.random() >= self.mosaic:
            return self._flipped(self._part(number, self.side, self.side, rng), rng)
        x, y = (round(self.side * share) for share in rng.uniform(*_MIDDLE, 2))
        corners = [
            (0, 0, x, y),
            (x, 0, self.side, y),
            (0, y, x, self.side),
            (x, y) + 2 * (self.side,),
        ]
        numbers = [number, *rng.integers(self.count, size=3).tolist()]
        parts = [
            self._part(one, x1 - x0, y1 - y0, rng)
            for one, (x0, y0, x1, y1) in zip(numbers, corners, strict=True)
        ]
        first = parts[0].image
        image = np.empty((self.side, self.side, first.shape[2]), first.dtype)
        for part, (x0, y0, x1, y1) in zip(parts, corners, strict=True):
            image[y0:y1, x0:x1] = part.image
        boxes = [
            part.boxes + np.array([x0, y0, x0, y0], np.float32)
            for part, (x0, y0, *_) in zip(parts, corners, strict=True)
        ]
        labels = np.concatenate([part.labels for part in parts])
        return self._flipped(Scene(image, np.concatenate(boxes), labels), rng)

    def _part(self, number: int, width: int, height: int, rng: np.random.Generator) -> Scene:
        """Cuts a part of a scene and resizes it to ``height`` × ``width``."""
        scene = self.scene(number)
        scale = float(np.exp(rng.uniform(*np.log(self.scales))))
        rows, columns, channels = scene.image.shape
        size = np.minimum(np.ceil(np.array([width, height]) / scale), [columns, rows])
        room = np.array([columns, rows]) - size
        start = rng.uniform(0, 1, 2) * room
        aims = np.flatnonzero(scene.labels > IGNORED)
        if rng.random() < self.aimed and len(aims):
            box = scene.boxes[rng.choice(aims)]
            start = np.clip((box[:2] + box[2:]) / 2 - rng.uniform(0.1, 0.9, 2) * size, 0, room)
        (x0, y0), (across, down) = np.floor(start).astype(int), size.astype(int)
        shown = np.minimum(np.rint(size * scale), [width, height]).astype(int)
        image = np.empty((height, width, channels), scene.image.dtype)
        image[:] = self.fill
        left, top = rng.integers(0, np.array([width, height]) - shown + 1)
        cut = scene.image[y0 : y0 + down, x0 : x0 + across]
        image[top : top + shown[1], left : left + shown[0]] = resized(cut, *shown.tolist())
        corners = (scene.boxes.reshape(-1, 2) - [x0, y0]) * (shown / [across, down])
        inside = np.clip(corners, 0, shown) + [left, top]
        boxes, labels = inside.reshape(-1, 4).astype(np.float32), scene.labels
        share, sides = _share(corners, inside)
        unclear = (share < _VISIBLE) | (sides.min(axis=1) < _LEAST)
        labels = np.where(unclear, IGNORED, labels).astype(np.int32)
        there = (sides > 0).all(axis=1)
        return Scene(image, boxes[there], labels[there])

    def _flipped(self, picture: Scene, rng: np.random.Generator) -> Scene:
        across, down = (rng.random(2) < 0.5) & self.flips
        image, boxes = picture.image, picture.boxes
        if across:
            image, boxes = image[:, ::-1], mirrored(boxes, self.side, 0)
        if down:
            image, boxes = image[::-1], mirrored(boxes, self.side, 1)
        return Scene(np.ascontiguousarray(image), boxes, picture.labels)


def _share(
    corners: Float[np.ndarray, "m 2"], inside: Float[np.ndarray, "m 2"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n 2"]]:
    """Returns the share of each box that is in the picture, and its sides there."""
    whole, seen = (np.diff(points.reshape(-1, 2, 2), axis=1)[:, 0] for points in (corners, inside))
    area = np.prod(whole, axis=1)
    return np.prod(seen, axis=1) / np.where(area > 0, area, 1), seen


def mirrored(boxes: Float[np.ndarray, "n 4"], side: int, axis: int) -> Float[np.ndarray, "n 4"]:
    """Mirrors boxes of a picture with this side along x (0) or y (1)."""
    boxes = boxes.copy()
    boxes[:, [axis, axis + 2]] = side - boxes[:, [axis + 2, axis]]
    return boxes


def resized(
    image: Shaped[np.ndarray, "h w c"], width: int, height: int
) -> Shaped[np.ndarray, "y x c"]:
    """Resizes an image of any dtype, bilinear with antialiasing."""
    if image.shape[:2] == (height, width):
        return image
    plain = image.dtype == np.uint8
    channels = [
        Image.fromarray(
            np.ascontiguousarray(image[..., c] if plain else image[..., c].astype(np.float32))
        )
        for c in range(image.shape[2])
    ]
    how = Image.Resampling.BILINEAR
    made = np.stack([np.asarray(one.resize((width, height), how)) for one in channels], axis=-1)
    whole = np.issubdtype(image.dtype, np.integer)
    return (np.rint(made) if whole and not plain else made).astype(image.dtype)


def padded(picture: Scene, most: int) -> dict[str, np.ndarray]:
    """Returns ``boxes`` ``[most, 4]`` and ``labels`` ``[most]`` of a picture, with padding."""
    missing = most - len(picture.labels)
    return {
        "boxes": np.pad(picture.boxes.astype(np.float32), ((0, missing), (0, 0))),
        "labels": np.pad(picture.labels.astype(np.int32), (0, missing), constant_values=PADDING),
    }
