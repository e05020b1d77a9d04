"""Renders predictions for notebooks: inline HTML in the notebook's own colours."""

import base64
import html
import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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


class Results(dict[str, Any]):
    """The figures of an evaluation, which a notebook displays as a table.

    Attributes:
      table: the table as HTML.
    """

    def __init__(self, figures: Mapping[str, Any], table: str):
        super().__init__(figures)
        self.table = table

    def _repr_html_(self) -> str:
        return self.table


def table(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str] = (),
) -> str:
    """Renders a table, in the notebook's own style.

    Args:
      title: its caption.
      header: titles of the columns; none for a table of names and values.
      rows: its cells; the first of a row is its title.
      notes: lines below it.
    """

    def cells(row: Sequence[str], kind: str) -> str:
        first, *rest = map(html.escape, row)
        title = f'<th scope="row" style="text-align: left">{first}</th>'
        return f"<tr>{title}{''.join(f'<{kind}>{one}</{kind}>' for one in rest)}</tr>"

    head = f"<thead>{cells(header, 'th')}</thead>" if header else ""
    body = "".join(cells(row, "td") for row in rows)
    below = "".join(f"<div>{html.escape(note)}</div>" for note in notes)
    caption = f'<caption style="text-align: left">{html.escape(title)}</caption>'
    return f"<table>{caption}{head}<tbody>{body}</tbody></table>{below}"


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
