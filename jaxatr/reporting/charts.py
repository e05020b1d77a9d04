"""Charts as what an SVG needs: positions and paths. The template ``charts.html`` draws them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jaxatr.reporting.axes import Axis
from jaxatr.reporting.curves import thin
from jaxatr.typing import Float

# A phone is 360 pixels wide: there a unit is about a pixel, and text has its size.
WIDTH, HEIGHT = 340, 240
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 10, 40
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
COLOURS, DASHES = 8, 4  # that the style sheet has
_TOLERANCE = 0.2  # of a unit, by which a drawn line may miss a point


class Series(NamedTuple):
    """A line of a chart.

    Attributes:
      label: what the legend calls it.
      points: ``[p, 2]``, in the axes' coordinates.
      figure: a figure that the legend shows beside the label.
      colour: number of a colour of the style sheet.
      dash: number of a pattern of the style sheet, 0 for an unbroken line.
      group: the score that it belongs to, by which it can be switched off.
      filled: an area down to the chart's floor in place of a line.
      dotted: its points are marked.
    """

    label: str
    points: Float[np.ndarray, "p 2"]
    figure: str = ""
    colour: int = 0
    dash: int = 0
    group: str = ""
    filled: bool = False
    dotted: bool = False


class Mark(NamedTuple):
    """A mark of an axis, at a position in the drawing."""

    position: float
    text: str


class Line(NamedTuple):
    """A :class:`Series` as it is drawn."""

    series: Series
    path: str
    dots: list[tuple[float, float]]


class Chart(NamedTuple):
    """A drawing, with the text that stands for it where it cannot be seen.

    Attributes:
      key: unique in the page.
      title: says what it shows.
      description: says what can be read from it, with figures.
      x, y: the axes.
      x_marks, y_marks: their marks, placed.
      lines: what is drawn.
    """

    key: str
    title: str
    description: str
    x: Axis
    y: Axis
    x_marks: list[Mark]
    y_marks: list[Mark]
    lines: list[Line]


def chart(
    key: str, title: str, description: str, x: Axis, y: Axis, series: Sequence[Series]
) -> Chart:
    """Returns the drawing of lines on two axes."""
    lines = [_line(x, y, one) for one in series]
    return Chart(key, title, description, x, y, _marks(x, _across), _marks(y, _down), lines)


def steps(
    heights: Float[np.ndarray, " b"], edges: Float[np.ndarray, " c"]
) -> Float[np.ndarray, "p 2"]:
    """Returns the outline of a histogram of ``b`` bins with ``b + 1`` edges."""
    outline = np.stack([np.repeat(edges, 2)[1:-1], np.repeat(heights, 2)], axis=1)
    return np.concatenate([[[edges[0], 0.0]], outline, [[edges[-1], 0.0]]])


def placed(x: Axis, y: Axis, points: Float[np.ndarray, "p 2"]) -> Float[np.ndarray, "p 2"]:
    """Returns where points in the axes' coordinates are in the drawing."""
    return np.stack([_across(x, points[:, 0]), _down(y, points[:, 1])], axis=1)


def _marks(axis: Axis, position: Callable[[Axis, np.ndarray], np.ndarray]) -> list[Mark]:
    positions = position(axis, np.array([at for at, _ in axis.ticks]))
    return [Mark(float(at), tick[1]) for at, tick in zip(positions, axis.ticks, strict=True)]


def _across(axis: Axis, values: np.ndarray) -> np.ndarray:
    return np.round(LEFT + PLOT_WIDTH * axis.place(values), 1)


def _down(axis: Axis, values: np.ndarray) -> np.ndarray:
    return np.round(TOP + PLOT_HEIGHT * (1 - axis.place(values)), 1)


def _line(x: Axis, y: Axis, series: Series) -> Line:
    drawn = placed(x, y, series.points)
    dots = [(float(across), float(down)) for across, down in drawn] if series.dotted else []
    if not series.filled:  # the corners of a histogram are what it consists of
        drawn = thin(drawn, _TOLERANCE)
    path = "M" + "L".join(f"{across:g} {down:g}" for across, down in drawn)
    return Line(series, path + ("Z" if series.filled else ""), dots)
