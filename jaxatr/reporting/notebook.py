"""Renders predictions for notebooks: inline HTML in the notebook's own colours."""

import base64
import io
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from jaxatr.reporting.environment import environment
from jaxatr.reporting.overlay import blended, drawn
from jaxatr.typing import Float, Shaped

SIDE = 160
"""The longer side of a picture, in pixels."""
MOST = 10
"""Largest number of bars of a card."""


class Bar(NamedTuple):
    """A line of a card.

    Attributes:
      name: name of a class.
      text: its value, formatted.
      share: length of the bar in [0, 1]; None for no bar.
    """

    name: str
    text: str
    share: float | None = None


class Card(NamedTuple):
    """The prediction for one input.

    Attributes:
      verdict: the decision.
      accepted: whether the decision is a known class.
      facts: lines about the score and the threshold.
      bars: bars for classes or neighbours.
      rest: text about classes without a bar; may be empty.
      pictures: caption to data URI.
    """

    verdict: str
    accepted: bool
    facts: Sequence[str]
    bars: Sequence[Bar]
    rest: str = ""
    pictures: Mapping[str, str] = {}


def render_cards(cards: Sequence[Card]) -> str:
    """Renders cards side by side."""
    return environment().get_template("cards.html").render(cards=cards, side=SIDE)


def probability_bars(probabilities: Mapping[str, float]) -> tuple[list[Bar], str]:
    """Makes bars for the most probable classes, highest first, and a text about the rest."""
    ordered = sorted(probabilities.items(), key=lambda item: -item[1])
    bars = [
        Bar(name, f"{100 * value:.1f} %", min(max(value, 0.0), 1.0))
        for name, value in ordered[:MOST]
    ]
    others = ordered[MOST:]
    if not others:
        return bars, ""
    classes, total = "class" if len(others) == 1 else "classes", sum(each for _, each in others)
    return bars, f"{len(others)} more {classes}, {100 * total:.1f} % together"


def picture(
    chip: Shaped[np.ndarray, "h w c"], saliency: Float[np.ndarray, "h w"] | None = None
) -> str:
    """Draws a chip, optionally with a saliency map over it, as a PNG data URI.

    Args:
      chip: ``[h, w, c]``, gray or RGB in any range; of others, the first three bands are drawn.
      saliency: ``[h, w]`` in [0, 1]; None for the chip alone.
    """
    if saliency is None:
        return _uri(drawn(chip, side=SIDE))
    return _uri(blended(chip, saliency, side=SIDE))


def _uri(image: Image.Image) -> str:
    file = io.BytesIO()
    image.save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
