"""A run's thumbnails as one picture, of which the page shows a window for each."""

import base64
import io
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from PIL import Image

from jaxatr.typing import Shaped, UInt8

_BLOCK = 8  # of a JPEG: a chip with its rim fills whole ones, so that no other shows through
_QUALITY = 85  # half of a PNG's bytes, and nothing to be seen of it


class Thumbnail(NamedTuple):
    """A test example to look at.

    Attributes:
      name: of its true class, which need not be a known one.
      image: ``[h, w, c]``, gray or RGB.
    """

    name: str
    image: Shaped[np.ndarray, "h w c"]


class Sprite(NamedTuple):
    """One picture of many chips, as a style sheet needs it.

    Attributes:
      source: the picture, as a data URI; empty if there are no chips.
      ratio: width by height of a chip, the CSS property ``aspect-ratio``.
      size: ``background-size`` that makes a chip as large as its window.
      at: key of a thumbnail to the ``background-position`` of its chip.
    """

    source: str
    ratio: str
    size: str
    at: dict[int, str]


def sprite(thumbnails: Mapping[int, Thumbnail]) -> Sprite:
    """Returns the picture of all of a run's thumbnails, which are of one size."""
    if not thumbnails:
        return Sprite("", "1", "auto", {})
    chips = np.stack([thumbnail.image for thumbnail in thumbnails.values()])
    count, high, wide = chips.shape[:3]
    across = math.ceil(math.sqrt(count))
    cells = _with_rims(chips)
    _, pitch_y, pitch_x, channels = cells.shape
    sheet = np.zeros((-(-count // across) * across, pitch_y, pitch_x, channels), np.uint8)
    sheet[:count] = cells
    sheet = sheet.reshape(-1, across, pitch_y, pitch_x, channels).swapaxes(1, 2)
    sheet = sheet.reshape(-1, across * pitch_x, channels)
    height, width = sheet.shape[:2]

    def at(place: int) -> str:  # in percent of what the window leaves of the picture
        x, y = (place % across) * pitch_x + 1, (place // across) * pitch_y + 1
        return f"{100 * x / (width - wide):.4f}% {100 * y / (height - high):.4f}%"

    return Sprite(
        _jpeg(sheet),
        f"{wide} / {high}",
        f"{100 * width / wide:.4f}% {100 * height / high:.4f}%",
        {row: at(place) for place, row in enumerate(thumbnails)},
    )


def squared(small: Shaped[np.ndarray, "h w c"], side: int) -> Shaped[np.ndarray, "y x 3"]:
    """Returns a picture in the middle of a gray square, small ones enlarged.

    Args:
      small: uint8, gray or RGB, no side longer than ``side``.
      side: in pixels.
    """
    picture = Image.fromarray(small[:, :, 0] if small.shape[2] == 1 else small).convert("RGB")
    factor = side / max(picture.size)
    size = [max(1, round(length * factor)) for length in picture.size]
    size = [side if length > 0.97 * side else length for length in size]  # no rim of a pixel or two
    picture = picture.resize((size[0], size[1]), Image.Resampling.NEAREST)
    square = Image.new("RGB", (side, side), (128, 128, 128))
    square.paste(picture, ((side - size[0]) // 2, (side - size[1]) // 2))
    return np.asarray(square)


def _with_rims(chips: UInt8[np.ndarray, "n h w c"]) -> UInt8[np.ndarray, "n H W c"]:
    """Returns chips with edges that go on for a pixel or more: a browser may round a window up."""
    after = [_BLOCK - (size + 1) % _BLOCK for size in chips.shape[1:3]]
    rims = [(0, 0), *((1, more) for more in after), (0, 0)]
    return np.pad(chips, rims, mode="edge")


def _jpeg(image: UInt8[np.ndarray, "h w c"]) -> str:
    picture, file = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image), io.BytesIO()
    picture.save(file, "JPEG", quality=_QUALITY, subsampling=0, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
