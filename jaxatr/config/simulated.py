"""The data and augmentation that recipes on simulated vehicles start from."""

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
    """Sets data, classes and augmentation: chips of 64 pixels in the visible band, cut by the box.

    Five of the eight vehicles are known. Chips are flipped, and turned by up to 5°.

    Args:
      config: to be changed.
      views: options of the data set that say how often and from where a vehicle is seen.
      name: of the data set.
      other_boxes: chips are a fifth larger than the box, and in training the box is off by up to a
        tenth.
      **options: further ones of the data set.
    """
    config.data.name = name
    fixed: dict[str, Any] = {"bands": ("visible",), "size": 64, "seed": 0, "crop": "box"}
    if other_boxes:
        fixed["surround"] = 12  # pixels, for what other boxes show
        config.data.center_crop = 64
        config.data.box_margin = 0.2
        config.augment.box_shift = config.augment.box_scale = 0.1
    config.data.options = ConfigDict({**views, **fixed, **options})
    config.open_set.split = "random-5/3"
    config.augment.flip_horizontal = True
    config.augment.rotate_degrees = 5.0
