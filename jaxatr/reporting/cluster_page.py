"""Renders a page of groups of rejected images, each with the command that enrols it."""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxatr.reporting.environment import environment
from jaxatr.reporting.sprite import Thumbnail, sprite, squared
from jaxatr.typing import Shaped

SIDE = 96
"""Side of a picture, in pixels."""


class Picture(NamedTuple):
    """An image of a group.

    Attributes:
      name: path of the image.
      image: uint8 thumbnail, gray or RGB.
      caption: text below the image.
    """

    name: str
    image: Shaped[np.ndarray, "h w c"]
    caption: str


class Cluster(NamedTuple):
    """A group of images.

    Attributes:
      number: number of the group.
      size: number of images.
      spread: mean distance of the images from the central one.
      nearest: known class to the number of images that are most similar to it.
      pictures: some of the images, the most central first.
      command: the command that enrols the group.
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
    """Renders a self-contained page.

    Args:
      title: name of the set of images.
      summary: a sentence on the number of unknown images.
      clusters: the groups, in order.
      alone: some of the images that are in no group.
      lone: number of images that are in no group.
    """
    sheets = [*(one.pictures for one in clusters), alone]
    numbers = _numbered(sheets)
    thumbnails = {
        number: Thumbnail(picture.name, squared(picture.image, SIDE))
        for sheet, row in zip(sheets, numbers, strict=True)
        for picture, number in zip(sheet, row, strict=True)
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


def _numbered(sheets: Sequence[Sequence[Picture]]) -> list[list[int]]:
    """Numbers the pictures of all sheets consecutively."""
    count = itertools.count()
    return [[next(count) for _ in sheet] for sheet in sheets]
