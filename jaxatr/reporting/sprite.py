"""Combines a run's thumbnails into a CSS sprite: one image that the page shows parts of."""

import base64
import io
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from PIL import Image

from jaxatr.typing import Shaped, UInt8

_BLOCK = 8  # JPEG block size: a chip with its rim fills whole blocks, so that neighbours do not mix
_QUALITY = 85  # half the size of a PNG, without visible artefacts


class Thumbnail(NamedTuple):
    """The picture of a test example.

    Attributes:
      name: name of its true class, known or unknown.
      image: ``[h, w, c]``, gray or RGB.
    """

    name: str
    image: Shaped[np.ndarray, "h w c"]


class Sprite(NamedTuple):
    """An image of many chips, with the CSS values that select one of them.

    Attributes:
      source: the image as a data URI; empty if there are no chips.
      ratio: CSS ``aspect-ratio`` of a chip.
      size: CSS ``background-size`` that scales a chip to its element.
      at: key of a thumbnail to the CSS ``background-position`` of its chip.
    """

    source: str
    ratio: str
    size: str
    at: dict[int, str]


def sprite(thumbnails: Mapping[int, Thumbnail]) -> Sprite:
    """Combines thumbnails of the same size into a sprite."""
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

    def at(place: int) -> str:  # percent of the image's size minus the chip's, as in CSS
        x, y = (place % across) * pitch_x + 1, (place // across) * pitch_y + 1
        return f"{100 * x / (width - wide):.4f}% {100 * y / (height - high):.4f}%"

    return Sprite(
        _jpeg(sheet),
        f"{wide} / {high}",
        f"{100 * width / wide:.4f}% {100 * height / high:.4f}%",
        {row: at(place) for place, row in enumerate(thumbnails)},
    )


def squared(small: Shaped[np.ndarray, "h w c"], side: int) -> Shaped[np.ndarray, "y x 3"]:
    """Scales a picture to fit a square, and fills the rest of the square with gray.

    Args:
      small: uint8 ``[h, w, c]``, gray or RGB, no side longer than ``side``.
      side: side of the square, in pixels.
    """
    picture = Image.fromarray(small[:, :, 0] if small.shape[2] == 1 else small).convert("RGB")
    factor = side / max(picture.size)
    size = [max(1, round(length * factor)) for length in picture.size]
    # Stretches slightly rather than leaving a rim of a pixel or two.
    size = [side if length > 0.97 * side else length for length in size]
    picture = picture.resize((size[0], size[1]), Image.Resampling.NEAREST)
    square = Image.new("RGB", (side, side), (128, 128, 128))
    square.paste(picture, ((side - size[0]) // 2, (side - size[1]) // 2))
    return np.asarray(square)


def _with_rims(chips: UInt8[np.ndarray, "n h w c"]) -> UInt8[np.ndarray, "n H W c"]:
    """Pads chips by repeating their edges, because browsers may round positions up by a pixel."""
    after = [_BLOCK - (size + 1) % _BLOCK for size in chips.shape[1:3]]
    rims = [(0, 0), *((1, more) for more in after), (0, 0)]
    return np.pad(chips, rims, mode="edge")


def _jpeg(image: UInt8[np.ndarray, "h w c"]) -> str:
    picture, file = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image), io.BytesIO()
    picture.save(file, "JPEG", quality=_QUALITY, subsampling=0, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
