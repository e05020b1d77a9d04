"""Renders a page of what has changed in the predictions of a run over time."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxatr.reporting import axes, charts
from jaxatr.reporting.charts import COLOURS, DASHES, Chart, Series, chart
from jaxatr.reporting.environment import environment
from jaxatr.typing import Float

_TICKS = 4  # dates below a chart
MOST_ROWS = 400
"""Largest number of rows of a table on the page."""


class Curve(NamedTuple):
    """A statistic of a source or a class over the periods.

    Attributes:
      label: the source or the class.
      values: ``[t]``, NaN for a period without.
    """

    label: str
    values: Float[np.ndarray, " t"]


class Drawing(NamedTuple):
    """A chart of some curves.

    Attributes:
      title: title of the chart.
      unit: label of its axis.
      share: whether the values are shares, shown in percent.
      curves: the curves.
    """

    title: str
    unit: str
    share: bool
    curves: Sequence[Curve]


class Part(NamedTuple):
    """One run's section of the page.

    Attributes:
      title: heading.
      summary: a sentence about what was compared, and whether there are changes.
      findings: a sentence for each change.
      facts: further sentences.
      dates: ``t`` names of the periods.
      drawings: the charts.
      header: names of the table's columns.
      rows: its rows, texts.
    """

    title: str
    summary: str
    findings: Sequence[str]
    facts: Sequence[str]
    dates: Sequence[str]
    drawings: Sequence[Drawing]
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def render(parts: Sequence[Part], left_out: Sequence[str]) -> str:
    """Renders a self-contained page.

    Args:
      parts: the sections, one for each run.
      left_out: lines about tables and rows that were not read.
    """
    made = environment()
    made.globals |= {"geometry": charts}
    drawn = [
        [_chart(f"run{number}-{place}", one, part.dates) for place, one in enumerate(part.drawings)]
        for number, part in enumerate(parts)
    ]
    return made.get_template("monitor.html").render(
        parts=parts, charts=drawn, left_out=left_out, most=MOST_ROWS
    )


def _chart(key: str, drawing: Drawing, dates: Sequence[str]) -> Chart:
    every = np.concatenate([curve.values for curve in drawing.curves])
    every = every[np.isfinite(every)]
    low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, 1.0)
    if drawing.share:
        down = axes.percent(drawing.unit, 0.0, max(0.1, min(1.0, 1.1 * high)))
    else:
        down = axes.linear(drawing.unit, low, high)
    series, words = [], []
    for number, curve in enumerate(drawing.curves):
        there = np.flatnonzero(np.isfinite(curve.values))
        if not len(there):
            continue
        points = np.stack([there.astype(np.float64), curve.values[there]], axis=1)
        colour, dash = number % COLOURS, number // COLOURS % DASHES
        series.append(Series(curve.label, points, colour=colour, dash=dash, dotted=len(there) < 40))
        first, last = (_text(value, drawing.share) for value in points[[0, -1], 1])
        words.append(f"{curve.label}: {first} at first, {last} at the end.")
    across = _dates_axis(dates)
    return chart(key, drawing.title, " ".join(words), across, down, series)


def _text(value: float, share: bool) -> str:
    return f"{100 * value:.1f} %" if share else f"{value:.4g}"


def _dates_axis(dates: Sequence[str]) -> axes.Axis:
    """Makes an axis of periods, with a few dates without the year."""
    last, hours = len(dates) - 1, len(dates[0]) > len("2026-03-01")
    several_days = len({date[:10] for date in dates}) > 1
    shown = slice(5 if several_days or not hours else 11, None)
    count = min(_TICKS - (hours and several_days), len(dates))
    chosen = sorted({round(place) for place in np.linspace(0, last, count)})
    ticks = tuple((float(place), str(dates[place])[shown]) for place in chosen)
    margin = max(0.03 * last, 0.25)
    return axes.Axis("time (UTC)", -margin, last + margin, ticks)
