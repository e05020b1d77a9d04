"""Renders a page on which chips are labelled, by keys or buttons, and saved as a table."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxatr.data.files_below import as_utf8
from jaxatr.reporting.environment import environment
from jaxatr.reporting.sprite import Thumbnail, sprite, squared
from jaxatr.typing import Shaped

SIDE = 192
"""Side of a picture, in pixels."""


class Card(NamedTuple):
    """A chip to label.

    Attributes:
      file: absolute path of its image, for the table.
      name: its path as the user knows it.
      image: uint8 thumbnail, gray or RGB.
      why: why it is to be labelled.
      verdict: the run's decision.
    """

    file: str
    name: str
    image: Shaped[np.ndarray, "h w c"]
    why: str
    verdict: str


def render(title: str, classes: Sequence[str], cards: Sequence[Card]) -> str:
    """Renders a self-contained page, which keeps labels in the browser until they are saved.

    Args:
      title: name of the set of images.
      classes: names of the known classes.
      cards: the chips, the first to be labelled first.
    """
    sheet = sprite(
        {number: Thumbnail("", squared(card.image, SIDE)) for number, card in enumerate(cards)}
    )
    data = {
        "classes": [*classes],
        "chips": [
            {
                "file": as_utf8(card.file),
                "name": as_utf8(card.name),
                "why": card.why,
                "verdict": card.verdict,
                "at": sheet.at[number],
            }
            for number, card in enumerate(cards)
        ],
        # Labels that the browser keeps belong to these chips.
        "key": hashlib.sha256(repr([card.file for card in cards]).encode()).hexdigest()[:16],
    }
    template = environment().get_template("label.html")
    return template.render(name=as_utf8(title), count=len(cards), data=data, sprite=sheet)
