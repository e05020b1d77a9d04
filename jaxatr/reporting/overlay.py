"""Draws saliency maps over their chips, with a legend."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from jaxatr.data.bands import shown
from jaxatr.data.lettering import lettered
from jaxatr.typing import Float, Shaped, UInt8

_GAP = 8
"""Pixels between pictures."""


def colour_map(steps: int = 256) -> UInt8[np.ndarray, "n 3"]:
    """Returns the colours of values from 0 to 1: dark blue through green to light yellow.

    The map is perceptually uniform: in Oklab (Ottosson 2020) lightness and hue change linearly, and
    the chroma is low enough for every colour to be in the sRGB gamut. Equal differences therefore
    look equal, even in gray and to colour-blind readers.

    Returns:
      ``[n, 3]`` RGB.
    """
    t = np.linspace(0, 1, steps)
    lightness, hue = 0.22 + 0.7 * t, np.deg2rad(285 - 185 * t)
    chroma = 0.105 * np.sin(np.pi * (0.15 + 0.7 * t))
    a, b = chroma * np.cos(hue), chroma * np.sin(hue)
    # From Oklab to linear sRGB, by the two matrices of its definition.
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = np.stack(
        [
            4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
            -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
            -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
        ],
        axis=1,
    ).clip(0, 1)
    curve = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.rint(255 * curve).astype(np.uint8)


def overlay(
    chip: Shaped[np.ndarray, "h w c"],
    saliency: Float[np.ndarray, "h w"],
    *,
    title: str,
    side: int = 320,
    share: float = 0.6,
) -> Image.Image:
    """Draws a chip, a saliency map over it, and the legend of the colours.

    Args:
      chip: ``[h, w, c]``, gray or RGB in any range; of others, the first three bands are drawn.
      saliency: ``[h, w]`` in [0, 1].
      title: text above the pictures, in one or more lines.
      side: longer side of each picture, in pixels.
      share: weight of the map in the blend, in [0, 1].

    Raises:
      ValueError: the map does not have the chip's size, or has values outside [0, 1].
    """
    _check(chip, saliency)
    colours, size = colour_map(), _size(chip.shape[:2], side)
    left = drawn(chip, side=side)
    gap, bar = _GAP, 14
    width = 2 * size[0] + 5 * gap + bar + 28
    title, head, font = _headed(title, width)
    canvas = Image.new("RGB", (width, size[1] + head + gap), "white")
    draw = ImageDraw.Draw(canvas)
    draw.text((gap, 5), title, fill="black", font=font)
    canvas.paste(left, (gap, head))
    canvas.paste(blended(chip, saliency, side=side, share=share), (2 * gap + size[0], head))
    legend = Image.fromarray(np.repeat(colours[::-1, None], bar, axis=1)).resize((bar, size[1]))
    x = 4 * gap + 2 * size[0]
    canvas.paste(legend, (x, head))
    for value, y in (("1", head), ("0", head + size[1] - 14)):
        draw.text((x + bar + 4, y), value, fill="black", font=font)
    return canvas


def sheet(
    chip: Shaped[np.ndarray, "h w c"],
    maps: Sequence[tuple[str, Float[np.ndarray, "h w"]]],
    *,
    title: str,
    side: int = 200,
    columns: int = 4,
    share: float = 0.6,
) -> Image.Image:
    """Draws a chip and several saliency maps over it, each with a title.

    Args:
      chip: ``[h, w, c]``, gray or RGB in any range; of others, the first three bands are drawn.
      maps: (title in one or more lines, map ``[h, w]`` in [0, 1]) for each map.
      title: text above the pictures, in one or more lines.
      side: longer side of each picture, in pixels.
      columns: number of pictures in a row.
      share: weight of the maps in the blends, in [0, 1].

    Raises:
      ValueError: a map does not have the chip's size, or has values outside [0, 1].
    """
    size = _size(chip.shape[:2], side)
    cells = [("chip", _shown(chip).resize(size, Image.Resampling.NEAREST))]
    for name, saliency in maps:
        _check(chip, saliency)
        cells.append((name, blended(chip, saliency, side=side, share=share)))
    columns = min(columns, len(cells))
    width = columns * (size[0] + _GAP) + _GAP
    title, head, font = _headed(title, width)
    named = [_headed(name, size[0] + _GAP) for name, _ in cells]
    above = max(height for _, height, _ in named)
    tall = -(-len(cells) // columns) * (above + size[1]) + head + _GAP
    canvas = Image.new("RGB", (width, tall), "white")
    draw = ImageDraw.Draw(canvas)
    draw.text((_GAP, 5), title, fill="black", font=font)
    for number, ((_, picture), (name, _, _)) in enumerate(zip(cells, named, strict=True)):
        row, column = divmod(number, columns)
        x, y = _GAP + column * (size[0] + _GAP), head + row * (above + size[1])
        draw.text((x, y + 5), name, fill="black", font=font)
        canvas.paste(picture, (x, y + above))
    return canvas


def _headed(title: str, width: int) -> tuple[str, int, ImageFont.FreeTypeFont]:
    """Wraps a title to a width; returns the wrapped title, its height in pixels and its font."""
    title, font = lettered(title)
    lines: list[str] = []
    for line in title.split("\n"):
        words: list[str] = []
        for word in line.split(" "):
            if words and font.getlength(" ".join([*words, word])) > width - 2 * _GAP:
                lines.append(" ".join(words))
                words = []
            words.append(word)
        lines.append(" ".join(words))
    return "\n".join(lines), 9 + 17 * len(lines), font


def _check(chip: Shaped[np.ndarray, "h w c"], saliency: Float[np.ndarray, "h w"]) -> None:
    if saliency.shape != chip.shape[:2]:
        raise ValueError(f"saliency: got shape {saliency.shape}, wanted {chip.shape[:2]}")
    if not (np.isfinite(saliency).all() and saliency.min() >= 0 and saliency.max() <= 1):
        raise ValueError("saliency: got values outside [0, 1]")


def blended(
    chip: Shaped[np.ndarray, "h w c"],
    saliency: Float[np.ndarray, "y x"],
    *,
    side: int,
    share: float = 0.6,
) -> Image.Image:
    """Blends a saliency map in colours with its chip.

    Args:
      chip: ``[h, w, c]``, gray or RGB in any range; of others, the first three bands are drawn.
      saliency: ``[y, x]`` in [0, 1], with the aspect ratio of the chip.
      side: longer side of the picture, in pixels.
      share: weight of the map in the blend, in [0, 1].
    """
    size = _size(chip.shape[:2], side)
    mapped = Image.fromarray(colour_map()[np.rint(255 * saliency).astype(int)])
    mapped = mapped.resize(size, Image.Resampling.BILINEAR)
    return Image.blend(drawn(chip, side=side), mapped, share)


def drawn(chip: Shaped[np.ndarray, "h w c"], *, side: int) -> Image.Image:
    """Draws a chip, enlarged by nearest-neighbour interpolation.

    Args:
      chip: ``[h, w, c]``, gray or RGB in any range; of others, the first three bands are drawn.
      side: longer side of the picture, in pixels.
    """
    return _shown(chip).resize(_size(chip.shape[:2], side), Image.Resampling.NEAREST)


def _shown(chip: Shaped[np.ndarray, "h w c"]) -> Image.Image:
    chip = shown(chip)
    pixels = chip.astype(np.float64)
    if chip.dtype != np.uint8:
        low, high = pixels.min(), pixels.max()
        pixels = (pixels - low) * (255 / (high - low if high > low else 1))
    small = np.rint(pixels).astype(np.uint8)
    return Image.fromarray(small[:, :, 0] if small.shape[2] == 1 else small).convert("RGB")


def _size(shape: tuple[int, ...], side: int) -> tuple[int, int]:
    """Returns width and height with the aspect ratio of ``shape`` and longer side ``side``."""
    scale = side / max(shape)
    return max(1, round(shape[1] * scale)), max(1, round(shape[0] * scale))
