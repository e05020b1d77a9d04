"""The bands of a run's chips: which of the images' they are, and which of them pictures show."""

from typing import Any

from jaxatr import data
from jaxatr.typing import Config


def chip_of(fields: Config, dataset: data.Dataset) -> data.Chip:
    """Creates the geometry of a configuration, with its choice among the images' bands.

    Args:
      fields: ``config.data``.
      dataset: the data set, whose bands may have names.

    Raises:
      ValueError: there are no such bands.
    """
    choice = None
    if fields.bands:
        count = int(next(iter(dataset.splits.values())).columns["channels"][0])
        used = data.chosen("data.bands", fields.bands, dataset.bands.names, count)
        choice = data.Choice(used, count)
    return data.Chip.configured(fields, fields.channels or None, choice)


def preview_of(
    fields: Config, bands: data.Bands, used: data.Choice | None, channels: int
) -> tuple[int, ...]:
    """Finds the channels that pictures show: ``data.preview_bands``, else the usual ones.

    Args:
      fields: ``config.data``.
      bands: how files become images.
      used: the bands of the images that the chips have; None for all.
      channels: channels of the chips.

    Returns:
      One or three channels; empty for those of gray and RGB.

    Raises:
      ValueError: there are no such bands, or they are neither one nor three.
    """
    names, numbers = bands.names, range(channels) if used is None else used.numbers
    text = fields.preview_bands
    wanted = data.chosen(
        "data.preview_bands", text, names, used.of if used else max(channels, len(names))
    )
    if not wanted:
        own = [names[number] for number in numbers] if len(names) > max(numbers) else []
        return () if channels in (1, 3) else data.preview_of(own, channels)
    if len(wanted) not in (1, 3):
        raise ValueError(f"data.preview_bands: got {text!r}, wanted one band or three")
    if missing := [number for number in wanted if number not in numbers]:
        raise ValueError(
            f"data.preview_bands: band {missing[0] + 1} is none of those that the chips have, "
            f"data.bands={fields.bands}"
        )
    return tuple(list(numbers).index(number) for number in wanted)


def record_of(
    bands: data.Bands, used: data.Choice | None, preview: tuple[int, ...], channels: int
) -> dict[str, Any]:
    """Returns the bands' entry of a run's record; empty for plain gray and RGB."""
    if channels in (1, 3) and not (used or preview) and bands == data.Bands():
        return {}
    numbers, of = used or (tuple(range(channels)), channels)
    return {
        "bands": {
            **bands.as_dict(),
            "of": of,
            "used": [number + 1 for number in numbers] if used else [],
            "preview": [number + 1 for number in preview],
        }
    }
