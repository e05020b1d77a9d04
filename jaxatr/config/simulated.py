"""The data and augmentation settings of recipes on simulated vehicles."""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from jaxatr.typing import Config

VIEWS: Mapping[str, Any] = {"aspects": 216, "ranges": (1000, 2000, 3000)}
"""Options of the data set ``simulated``: 216 views at each range."""


def simulated_vehicles(
    config: Config,
    views: Mapping[str, Any] = VIEWS,
    *,
    name: str = "simulated",
    other_boxes: bool = True,
    **options: Any,
) -> None:
    """Sets data, classes and augmentation: 64-pixel chips of the visible band, cropped to boxes.

    Five of the eight vehicles are known. Chips are flipped and rotated by up to 5°.

    Args:
      config: the configuration to change.
      views: options of the data set that set the number and positions of views of each vehicle.
      name: name of the data set.
      other_boxes: render the surroundings of the chips too, and perturb the box by up to a tenth of
        its side in training.
      **options: further options of the data set.
    """
    config.data.name = name
    fixed: dict[str, Any] = {"bands": ("visible",), "size": 64, "seed": 0, "crop": "box"}
    if other_boxes:
        fixed["surround"] = 12  # pixels around the chip, visible in perturbed boxes
        config.data.center_crop = 64
        config.data.box_margin = 0.2  # the chips of crop="box" are a fifth larger than the box
        config.augment.box_shift = config.augment.box_scale = 0.1
    config.data.options = ConfigDict({**views, **fixed, **options})
    config.open_set.split = "random-5/3"
    config.augment.flip_horizontal = True
    config.augment.rotate_degrees = 5.0
