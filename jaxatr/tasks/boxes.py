"""Chips cropped to perturbed boxes, for the test and for the augmentation."""

import math
from typing import Any

import numpy as np

from jaxatr import data
from jaxatr.typing import Config


def with_boxes_off(test: data.Split, chip: data.Chip, fields: Config) -> data.Split:
    """Crops the test examples to boxes that are perturbed by up to ``data.box_error``.

    Args:
      test: the test split of the data set.
      chip: geometry of the chips at the correct boxes.
      fields: ``config.data``.

    Raises:
      ValueError: the images are not larger than the chips.
    """
    try:
        return data.other_boxes(test, chip, error=fields.box_error, margin=fields.box_margin)
    except ValueError as error:
        raise ValueError(f"data.box_error: {error}") from error


def shares_of_chip(augment: Config, box_margin: float) -> dict[str, Any]:
    """Returns ``config.augment`` with fractions of the box's side converted to the chip's side."""
    fields = dict(augment)
    fields["box_shift"] /= 1 + box_margin
    return fields


def surrounded_chip(
    train: data.Split, indices: np.ndarray, chip: data.Chip, fields: dict[str, Any]
) -> data.Chip:
    """Returns the geometry of training images, with the margin that perturbed boxes need.

    Args:
      train: the training split of the data set.
      indices: ``[n]``, indices of its training examples.
      chip: geometry of the chips.
      fields: augmentation fields from :func:`shares_of_chip`.
    """
    if not (fields["box_shift"] or fields["box_scale"]) or not chip.cuts:
        return chip
    # Of all angles up to the largest, the corners reach farthest at 45 degrees.
    side, turn = chip.center_crop, math.radians(min(abs(fields["rotate_degrees"]), 45))
    corner = (1 + fields["box_scale"]) * (abs(math.cos(turn)) + abs(math.sin(turn)))
    wanted = math.ceil(side * (fields["box_shift"] + (corner - 1) / 2))
    columns = [train.columns[name][indices] for name in ("height", "width")]
    return chip.surrounded(min(wanted, (int(np.min(columns)) - side) // 2))
