"""The page of what monitoring found, as texts and curves by period and source."""

from collections.abc import Sequence

import numpy as np

from jaxatr.data import Cell
from jaxatr.recognition.monitoring import SECONDS, Outlook, Period, date, periods
from jaxatr.recognition.prediction import UNKNOWN
from jaxatr.recognition.sighted_tables import SCORE, STATISTICS, Sighted, values_of
from jaxatr.reporting.monitor_page import Curve, Drawing, Part
from jaxatr.reporting.tables import percent

_LINES = 8  # most sources and classes with a curve of their own


def part_of(seen: Outlook, title: str) -> Part:
    """Returns a run's part of the page.

    Args:
      seen: what was found.
      title: the heading.
    """
    figures = periods(seen.rows, seen.by)
    others = [name for name in STATISTICS if any(one.medians[name] is not None for one in figures)]
    header = [seen.by, "source", "inputs", "unusable", "unknown (%)"]
    header += [f"median {name}" for name in others]
    return Part(
        title,
        seen.summary,
        [one.sentence for one in seen.findings],
        seen.facts,
        _dates(seen.rows, seen.by),
        _drawings(seen, others),
        header,
        [_texts(one, others) for one in figures],
    )


def table_of(seen: Outlook) -> list[dict[str, Cell]]:
    """Returns the figures by period and source as rows of a table."""
    return [
        {
            "run": seen.run,
            seen.by: one.date,
            "source": one.source,
            "inputs": one.inputs,
            "unusable": one.unusable,
            "unknown": one.unknown,
            "unknown_share": one.unknown_share,
            **{f"median_{name}": value for name, value in one.medians.items()},
        }
        for one in periods(seen.rows, seen.by)
    ]


def _texts(one: Period, others: Sequence[str]) -> list[str]:
    medians = (one.medians[name] for name in others)
    return [
        one.date,
        one.source,
        str(one.inputs),
        str(one.unusable),
        percent(one.unknown_share),
        *("-" if value is None else f"{value:.4g}" for value in medians),
    ]


def _numbers(rows: Sighted, by: str) -> np.ndarray:
    return np.unique(rows.time // SECONDS[by])


def _dates(rows: Sighted, by: str) -> list[str]:
    return [date(int(number), by) for number in _numbers(rows, by)]


def _drawings(seen: Outlook, others: Sequence[str]) -> list[Drawing]:
    rows, usable = seen.rows, ~seen.rows.failed
    unknown = usable & (rows.label == rows.code(UNKNOWN))
    accepted = usable & ~unknown
    place = np.searchsorted(_numbers(rows, seen.by), rows.time // SECONDS[seen.by])
    count = int(place.max()) + 1
    sources = rows.texts(rows.source)
    groups = [("all sources", np.ones(len(place), bool))]
    if len(sources) > 1:
        groups += [(one, rows.source == rows.code(one)) for one in sources[: _LINES - 1]]

    def share(hits: np.ndarray, among: np.ndarray) -> np.ndarray:
        of = np.bincount(place[among], minlength=count)
        some = np.bincount(place[among & hits], minlength=count)
        return np.where(of > 0, some / np.maximum(of, 1), np.nan)

    def medians(name: str, among: np.ndarray) -> np.ndarray:
        every = values_of(rows, name)
        there = among & np.isfinite(every)
        found = np.full(count, np.nan)
        for number in np.unique(place[there]):
            found[number] = np.median(every[there & (place == number)])
        return found

    drawn = [
        Drawing(
            "Unknown chips",
            "share of the chips",
            True,
            [Curve(name, share(unknown, usable & some)) for name, some in groups],
        )
    ]
    if rows.failed.any():
        curves = [Curve(name, share(rows.failed, some)) for name, some in groups]
        drawn.append(Drawing("Unusable inputs", "share of the inputs", True, curves))
    if accepted.any():
        classes = rows.texts(rows.label[accepted])[:_LINES]
        curves = [Curve(name, share(rows.label == rows.code(name), accepted)) for name in classes]
        drawn.append(Drawing("Classes", "share of the accepted chips", True, curves))
    for name in others:
        curves = [Curve(label, medians(name, some)) for label, some in groups]
        what = "score" if name == SCORE else f"{name} of the chips"
        drawn.append(Drawing(f"Median {what}", name, False, curves))
    return drawn
