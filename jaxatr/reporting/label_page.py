"""Renders a page on which chips are labelled, or labels corrected, and saved as a table."""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxatr.data.files_below import as_utf8
from jaxatr.reporting.environment import environment
from jaxatr.reporting.sprite import Sprite, Thumbnail, sprite, squared
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
      verdict: the run's decision, or the given label.
    """

    file: str
    name: str
    image: Shaped[np.ndarray, "h w c"]
    why: str
    verdict: str


class Words(NamedTuple):
    """The texts of a kind of page.

    Attributes:
      kind: its heading.
      order: which chips come first.
      reader: what reads the saved table.
      says: who gives the verdict.
      made_by: the command that makes it.
      other: the answer beside the classes: what it is called and its key.
      cell: what the table's column of labels has for this answer.
      new: whether a label may be another than those of the classes.
    """

    kind: str
    order: str
    reader: str
    says: str
    made_by: str
    other: tuple[str, str]
    cell: str
    new: bool


TO_LABEL = Words(
    kind="Chips to label",
    order="the most useful first",
    reader="that a training reads (data.added)",
    says="The run says",
    made_by="jaxatr suggest",
    other=("unknown", "u"),
    cell="unknown",
    new=True,
)
TO_CORRECT = Words(
    kind="Labels to check",
    order="the most doubtful first",
    reader="that a training reads (data.corrections)",
    says="The label says",
    made_by="jaxatr check",
    other=("leave out", "x"),
    cell="",
    new=False,
)


def render(
    title: str, classes: Sequence[str], cards: Sequence[Card], words: Words = TO_LABEL
) -> str:
    """Renders a self-contained page, which keeps labels in the browser until they are saved.

    Args:
      title: name of the set of images.
      classes: names of the known classes.
      cards: the chips, the first to be labelled first.
      words: the texts of the page.
    """
    data, sheet = content(classes, cards, words)
    template = environment().get_template("label.html")
    shown = {"name": as_utf8(title), "count": len(cards), "words": words}
    return template.render(data=data, sprite=sheet, **shown)


def content(
    classes: Sequence[str], cards: Sequence[Card], words: Words
) -> tuple[dict[str, Any], Sprite]:
    """Makes the JSON values that the page's script reads, and the pictures.

    Args:
      classes: names of the known classes.
      cards: the chips.
      words: the texts of the page.
    """
    sheet = sprite(
        {number: Thumbnail("", squared(card.image, SIDE)) for number, card in enumerate(cards)}
    )
    name, key = words.other
    found = {
        "classes": [*classes],
        # No class is called " ", and one may be called as the answer is.
        "other": {"name": name, "key": key, "cell": words.cell, "value": words.cell or " "},
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
    return found, sheet


def doubt(likely: str, likely_share: float, given_share: float) -> str:
    """Says why a label is doubtful.

    Args:
      likely: the likely class.
      likely_share: its probability.
      given_share: the probability of the given label.
    """
    return f"likely {likely} ({likely_share:.0%}); the label has {given_share:.0%}"
