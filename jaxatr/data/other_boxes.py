"""Chips cut by inaccurate boxes, such as those of a detector."""

import dataclasses
import math
from typing import Any

import numpy as np

from jaxatr.data.chip import Chip, cut_out
from jaxatr.data.dataset import SHAPE_COLUMNS, Split
from jaxatr.typing import Float, Shaped

_STREAM = 22  # separates these draws from others with the same seed


def box_errors(number: int, copy: int | None = None) -> Float[np.ndarray, " 3"]:
    """Draws the deviations of an example's box, in [-1, 1]: down, right, and of the side.

    Args:
      number: the example's id.
      copy: which of several draws; None for that of the test.
    """
    draw = (_STREAM, number) if copy is None else (_STREAM, copy, number)
    return np.random.default_rng(draw).uniform(-1, 1, 3)


def other_boxes(
    split: Split,
    chip: Chip,
    *,
    error: float,
    margin: float = 0.0,
    copy: int | None = None,
    reflect: bool = False,
) -> Split:
    """Returns a split whose chips are cut by boxes that deviate from the targets.

    The box's centre is off by up to ``error`` of its side in each direction, and its side is longer
    or shorter by up to ``error``, all uniform. The draws depend on the example's id only, so that
    every network is tested on the same chips. The split keeps the original's columns, and its
    images are already chips.

    Args:
      split: a split with images larger than the chips.
      chip: geometry that cuts out the centre, at the image's own scale.
      error: largest deviation, as a share of the box's longer side.
      margin: how much larger a chip is than the box, as a share of the box's longer side.
      copy: which of several draws of the boxes; None for that of the test.
      reflect: whether chips that are no plain crop, or whose images are too small, are continued
        by reflection instead of refused.

    Raises:
      ValueError: the chip blanks the centre; it is not a plain crop, or an image is too small, and
        ``reflect`` is not set; or chips are not square.
    """
    if chip.blank_center:
        raise ValueError(
            f"data.blank_center: got {chip.blank_center} together with data.box_error, which moves "
            "the centres: wanted data.box_error=0"
        )
    sides = np.stack([split.columns[name] for name in SHAPE_COLUMNS[:2]])
    side = chip.size or chip.center_crop or int(sides.max())
    room = error * side / (1 + margin) + error * side / 2
    wanted, smallest = side + 2 * math.ceil(room), int(sides.min())
    if reflect and not (chip.size or chip.center_crop or smallest == side):
        raise ValueError(
            f"boxes that are off by {error:g} need square chips of one size: set data.center_crop, "
            "or data.square and data.size"
        )
    if not reflect and (not chip.cuts or smallest < wanted):
        raise ValueError(
            f"boxes that are off by {error:g} need chips cut by data.center_crop out of images of "
            f"{wanted} pixels or more; got images of {smallest} and center_crop={side} "
            "(data.options.surround gives simulated chips their surroundings)"
        )
    columns = dict(split.columns)
    for name in SHAPE_COLUMNS[:2]:
        columns[name] = np.full(len(split), side)
    if chip.channels or chip.choice:
        count = chip.channels or len(chip.choice.numbers if chip.choice else ())
        columns["channels"] = np.full(len(split), count)
    records = _OtherBoxes(split, chip, side, error, error / (1 + margin), copy)
    return Split(f"{split.name}, boxes off", records, columns, split.classes, split.dtype)


@dataclasses.dataclass(frozen=True)
class _OtherBoxes:
    """The chips by number; ``shift`` is a share of the chip's side."""

    split: Split
    chip: Chip
    side: int
    scale: float
    shift: float
    copy: int | None

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": self.cut(self.split.image(index), int(self.split.columns["id"][index]))}

    def cut(self, image: Shaped[np.ndarray, "h w c"], number: int) -> Shaped[np.ndarray, "s s d"]:
        errors, side = box_errors(number, self.copy), self.side
        bands = Chip(channels=self.chip.channels, choice=self.chip.choice)
        if not self.chip.cuts:
            image, bands = self.chip(image), Chip()
        half = math.ceil(side * (self.shift + (1 + self.scale) / 2))
        if (missing := half - min(image.shape[:2]) // 2) > 0:
            image = np.pad(image, [(missing, missing)] * 2 + [(0, 0)], mode="reflect")
        height, width = image.shape[:2]
        y = (height - side) // 2 + side * (0.5 + self.shift * errors[0])
        x = (width - side) // 2 + side * (0.5 + self.shift * errors[1])
        half = side * (1 + self.scale * errors[2]) / 2
        cut = cut_out(image, (y - half, x - half, y + half, x + half), side)
        return bands(cut)
