"""Thumbnails and contact sheets of chips, for display."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from jaxatr.data.bands import shown
from jaxatr.data.lettering import lettered
from jaxatr.typing import Shaped, UInt8


def thumbnail(chip: Shaped[np.ndarray, "h w c"], *, side: int = 64) -> UInt8[np.ndarray, "y x d"]:
    """Converts a chip for display: uint8, gray or RGB, with no side longer than ``side`` pixels.

    8-bit values are kept. 16-bit and float values are stretched from the chip's minimum to its
    maximum, so the brightness of two such thumbnails cannot be compared. Of other chips than gray
    and RGB, the first three bands are shown, or the first of two. Small chips are not enlarged.

    Args:
      chip: ``[h, w, c]``.
      side: the longest side in pixels.

    >>> thumbnail(np.array([[[0], [500], [1000]]], np.uint16))[0, :, 0].tolist()
    [0, 128, 255]
    """
    pixels = shown(chip)
    if pixels.dtype != np.uint8:
        low, high = float(pixels.min()), float(pixels.max())
        span = high - low if high > low else 1.0
        spread = (pixels.astype(np.float64) - low) * (255 / span)
        pixels = np.rint(spread).astype(np.uint8)
    picture = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    picture.thumbnail((side, side))
    small = np.asarray(picture)
    return small[:, :, None] if small.ndim == 2 else small


def contact_sheet(
    rows: Sequence[tuple[str, Sequence[Shaped[np.ndarray, "h w c"]]]], *, side: int = 72
) -> Image.Image:
    """Arranges chips in rows with titles; a row without a title closely follows the one above.

    Args:
      rows: title and chips of each row.
      side: the size in pixels of every chip; smaller chips are enlarged without smoothing.
    """
    gap, title = 3, 20
    tops, height = [], gap
    for text, _ in rows:
        height += title if text else 0
        tops.append(height)
        height += side + gap
    width = gap + max(len(chips) for _, chips in rows) * (side + gap)
    colour = any(chip.shape[2] == 3 for _, chips in rows for chip in chips)
    sheet = Image.new("RGB" if colour else "L", (width, height), "white")
    draw = ImageDraw.Draw(sheet)
    for (text, chips), top in zip(rows, tops, strict=True):
        words, font = lettered(text)
        draw.text((gap, top - title + 3), words, fill="black", font=font)
        for column, chip in enumerate(chips):
            small = thumbnail(chip, side=side)
            picture = Image.fromarray(small[:, :, 0] if small.shape[2] == 1 else small)
            enlarged = picture.resize((side, side), Image.Resampling.NEAREST)
            sheet.paste(enlarged, (gap + column * (side + gap), top))
    return sheet
