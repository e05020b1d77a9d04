"""A page of groups of rejected images, each with the command that enrols it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxatr.reporting.environment import environment
from jaxatr.reporting.sprite import Thumbnail, sprite, squared
from jaxatr.typing import Shaped

SIDE = 96
"""Of a picture, in pixels."""


class Picture(NamedTuple):
    """An image of a group.

    Attributes:
      name: its path.
      image: uint8, small.
      caption: below it.
    """

    name: str
    image: Shaped[np.ndarray, "h w c"]
    caption: str


class Cluster(NamedTuple):
    """A group of images.

    Attributes:
      number: of the group.
      size: of how many images.
      spread: how far they lie from the one in the middle.
      nearest: known class to how many of them are most like it.
      pictures: some of them, from the middle outwards.
      command: that enrols it.
    """

    number: int
    size: int
    spread: float
    nearest: Mapping[str, int]
    pictures: Sequence[Picture]
    command: str


def render(
    title: str, summary: str, clusters: Sequence[Cluster], alone: Sequence[Picture], lone: int
) -> str:
    """Renders the page; it needs no other file and no network.

    Args:
      title: of the images.
      summary: in a sentence, how many are unknown to what.
      clusters: in their order.
      alone: some pictures of the images in no group.
      lone: how many those are.
    """
    sheets = [*(one.pictures for one in clusters), alone]
    numbers = [list(range(start, start + len(sheet))) for start, sheet in _starts(sheets)]
    thumbnails = {
        number: Thumbnail(picture.name, squared(picture.image, SIDE))
        for sheet, own in zip(sheets, numbers, strict=True)
        for picture, number in zip(sheet, own, strict=True)
    }
    template = environment().get_template("clusters.html")
    return template.render(
        name=title,
        summary=summary,
        clusters=clusters,
        alone=alone,
        lone=lone,
        numbers=numbers,
        sprite=sprite(thumbnails),
    )


def _starts(sheets: Sequence[Sequence[Picture]]) -> list[tuple[int, Sequence[Picture]]]:
    """Numbers the pictures of all sheets through."""
    found, start = [], 0
    for sheet in sheets:
        found.append((start, sheet))
        start += len(sheet)
    return found
