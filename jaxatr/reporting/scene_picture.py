"""Pictures of scenes with the boxes of targets, coloured by the decision."""

import math
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from jaxatr import data
from jaxatr.data.lettering import lettered
from jaxatr.data.scene_image import SceneImage
from jaxatr.typing import Shaped

KNOWN = ("#56B4E9", "#009E73", "#F0E442", "#CC79A7", "#0072B2", "#E69F00")
"""Colours of the classes, in turn: Okabe and Ito's, which colour-blind readers can tell apart."""

UNKNOWN, UNDECIDED = "#D55E00", "#999999"

_ROWS = 512  # of a strip of a scene that is reduced


def colour_of(label: str | None, classes: Sequence[str]) -> str:
    """Returns the colour of a class; of "unknown", which is no class; of None, not decided."""
    if label is None:
        return UNDECIDED
    return KNOWN[classes.index(label) % len(KNOWN)] if label in classes else UNKNOWN


def scene_picture(
    scene: SceneImage,
    boxes: Shaped[np.ndarray, "n 4"],
    labels: Sequence[str | None],
    texts: Sequence[str],
    classes: Sequence[str],
    *,
    most: int = 2048,
) -> Image.Image:
    """Draws boxes in a scene.

    Args:
      scene: the scene; a larger one than ``most`` is reduced to every second, third … pixel, read
        strip by strip.
      boxes: x0, y0, x1, y1 in pixels of the scene.
      labels: the decision about each.
      texts: a text above each box, or below one at the top of the picture.
      classes: the known classes, which give the colours.
      most: the longest side of the picture in pixels.
    """
    step = math.ceil(max(scene.height, scene.width) / most)
    rows = max(1, _ROWS // step) * step
    strips = [
        scene.pixels(slice(top, min(top + rows, scene.height)), slice(0, scene.width))[
            ::step, ::step
        ].copy()
        for top in range(0, scene.height, rows)
    ]
    shown = data.thumbnail(np.concatenate(strips), side=most)
    picture = Image.fromarray(shown[:, :, 0] if shown.shape[2] == 1 else shown).convert("RGB")
    draw = ImageDraw.Draw(picture)
    for (x0, y0, x1, y1), label, text in zip(
        (np.asarray(boxes) / step).tolist(), labels, texts, strict=True
    ):
        colour = colour_of(label, classes)
        right, bottom = max(x0, x1 - 1), max(y0, y1 - 1)
        draw.rectangle((x0, y0, right, bottom), outline=colour, width=2)
        words, font = lettered(text, 11)
        above = (x0, y0 - 14 if y0 >= 14 else y1)
        draw.text(above, words, fill=colour, font=font, stroke_width=1, stroke_fill="black")
    return picture


def closeup(
    scene: SceneImage,
    box: Shaped[np.ndarray, " 4"],
    colour: str,
    *,
    least: int = 48,
    side: int = 96,
) -> Shaped[np.ndarray, "y x 3"]:
    """Draws a box with its surroundings, as a square picture of ``side`` pixels.

    The picture shows twice the longer side of the box, and at least ``least`` pixels of the scene;
    beyond the scene it is black.
    """
    x0, y0, x1, y1 = (float(value) for value in box)
    shown = max(least, math.ceil(2 * max(x1 - x0, y1 - y0)))
    left, top = math.floor((x0 + x1 - shown) / 2), math.floor((y0 + y1 - shown) / 2)
    pixels = data.thumbnail(scene.window(left, top, left + shown, top + shown), side=shown)
    picture = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).convert("RGB")
    picture = picture.resize((side, side), Image.Resampling.BILINEAR)
    factor = side / shown
    corners = [(x0 - left) * factor, (y0 - top) * factor, (x1 - left) * factor, (y1 - top) * factor]
    ImageDraw.Draw(picture).rectangle(corners, outline=colour, width=1)
    return np.asarray(picture)
