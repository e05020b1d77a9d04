"""Chips cut by a box that is a little off, as a detector's in the field is."""

import dataclasses
import math
from typing import Any

import numpy as np

from jaxatr.data.chip import Chip, cut_out
from jaxatr.data.dataset import SHAPE_COLUMNS, Split
from jaxatr.typing import Shaped

_STREAM = 22  # of the draws, among all that a seed could be for


def other_boxes(split: Split, chip: Chip, *, error: float, margin: float = 0.0) -> Split:
    """Returns a split whose images are chips that are a little off their targets.

    The box's centre is off by up to ``error`` of its side, down or up and right or left, and its
    side is longer or shorter by up to ``error``, all uniform and drawn from the example's id alone:
    every network is tested on the same chips. The split has the columns of the original, and the
    images are chips already.

    Args:
      split: with images larger than the chips.
      chip: cuts the centre out, at the image's own scale.
      error: share of the box's longer side.
      margin: by how much larger a chip is than the box, a share of the box's longer side.

    Raises:
      ValueError: the chip does not cut, or blanks its centre, or an image has too little around it.
    """
    if chip.blank_center:
        raise ValueError(
            f"data.blank_center: got {chip.blank_center} and boxes that are off, whose centres are "
            "not the images': wanted data.box_error=0"
        )
    side = chip.center_crop
    room = error * side / (1 + margin) + error * side / 2
    wanted = side + 2 * math.ceil(room)
    smallest = min(int(split.columns[name].min()) for name in SHAPE_COLUMNS[:2])
    if not chip.cuts or smallest < wanted:
        raise ValueError(
            f"boxes that are off by {error:g} want images of {wanted} pixels or more, of which "
            f"data.center_crop cuts a chip; got images of {smallest} and center_crop={side} "
            "(data.options.surround gives simulated chips their surroundings)"
        )
    columns = dict(split.columns)
    for name in SHAPE_COLUMNS[:2]:
        columns[name] = np.full(len(split), side)
    if chip.channels:
        columns["channels"] = np.full(len(split), chip.channels)
    records = _OtherBoxes(split, chip, error, error / (1 + margin))
    return Split(f"{split.name}, boxes off", records, columns, split.classes, split.dtype)


@dataclasses.dataclass(frozen=True)
class _OtherBoxes:
    """The chips by number; ``shift`` is a share of the chip's side."""

    split: Split
    chip: Chip
    scale: float
    shift: float

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": self.cut(self.split.image(index), int(self.split.columns["id"][index]))}

    def cut(self, image: Shaped[np.ndarray, "h w c"], number: int) -> Shaped[np.ndarray, "s s d"]:
        errors = np.random.default_rng((_STREAM, number)).uniform(-1, 1, 3)
        side = self.chip.center_crop
        height, width = image.shape[:2]
        y = (height - side) // 2 + side * (0.5 + self.shift * errors[0])
        x = (width - side) // 2 + side * (0.5 + self.shift * errors[1])
        half = side * (1 + self.scale * errors[2]) / 2
        found = cut_out(image, (y - half, x - half, y + half, x + half), side)
        return Chip(channels=self.chip.channels)(found)
