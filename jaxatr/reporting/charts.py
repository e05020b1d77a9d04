"""Charts as positions and paths of an SVG; the template ``charts.html`` draws them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jaxatr.reporting.axes import Axis
from jaxatr.reporting.curves import thin
from jaxatr.typing import Float

# On a phone, 360 pixels wide, a unit is about one pixel, so that text has its nominal size.
WIDTH, HEIGHT = 340, 240
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 10, 40
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
COLOURS, DASHES = 8, 4  # numbers of colours and line patterns in the style sheet
_TOLERANCE = 0.2  # largest distance in units between a point and the simplified line


class Series(NamedTuple):
    """A line of a chart.

    Attributes:
      label: text in the legend.
      points: ``[p, 2]``, in the axes' coordinates.
      figure: a figure that the legend shows after the label.
      colour: number of a colour in the style sheet.
      dash: number of a line pattern in the style sheet; 0 for a solid line.
      group: name of the score that the line shows, by which readers can hide it.
      filled: draw an area down to the x axis instead of a line.
      dotted: draw a dot at each point.
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
    """A tick of an axis, at a position in the drawing."""

    position: float
    text: str


class Line(NamedTuple):
    """A :class:`Series` in the coordinates of the drawing."""

    series: Series
    path: str
    dots: list[tuple[float, float]]


class Chart(NamedTuple):
    """A drawing, with a description for readers who cannot see it.

    Attributes:
      key: an id that is unique in the page.
      title: title of the chart.
      description: the content in words, with figures.
      x, y: the axes.
      x_marks, y_marks: their ticks in the drawing.
      lines: the lines.
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
    """Draws lines on two axes."""
    lines = [_line(x, y, one) for one in series]
    return Chart(key, title, description, x, y, _marks(x, _across), _marks(y, _down), lines)


def steps(
    heights: Float[np.ndarray, " b"], edges: Float[np.ndarray, " c"]
) -> Float[np.ndarray, "p 2"]:
    """Returns the outline of a histogram of ``b`` bins with ``b + 1`` edges."""
    outline = np.stack([np.repeat(edges, 2)[1:-1], np.repeat(heights, 2)], axis=1)
    return np.concatenate([[[edges[0], 0.0]], outline, [[edges[-1], 0.0]]])


def placed(x: Axis, y: Axis, points: Float[np.ndarray, "p 2"]) -> Float[np.ndarray, "p 2"]:
    """Converts points from the axes' coordinates to those of the drawing."""
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
    if not series.filled:  # simplifying would change the bars of a histogram
        drawn = thin(drawn, _TOLERANCE)
    path = "M" + "L".join(f"{across:g} {down:g}" for across, down in drawn)
    return Line(series, path + ("Z" if series.filled else ""), dots)
