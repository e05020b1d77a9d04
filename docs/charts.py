"""Dot charts as SVG, legible in a light and a dark theme and on a narrow screen.

A chart has sections with an axis of their own; a section has rows, and a row has marks: a published
value, our mean with its spread and the single values behind it, or a rival's value.
"""

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

OURS, PUBLISHED, OTHER = "ours", "published", "other"

_WIDTH, _LEFT, _RIGHT, _ROW, _TEXT = 480, 168, 62, 22, 13
_LIGHT = {
    **{"ground": "#ffffff", "ink": "#1b2a41", "faint": "#5d6b82", "grid": "#dfe5ee"},
    **{OURS: "#2257a8", PUBLISHED: "#b4530a", OTHER: "#3f7d3f"},
}
_DARK = {
    **{"ground": "#1e2129", "ink": "#e6eaf2", "faint": "#a3b0c6", "grid": "#3a4252"},
    **{OURS: "#82b1ff", PUBLISHED: "#ffa45c", OTHER: "#8fd08f"},
}


@dataclass(frozen=True)
class Mark:
    """A value of a row.

    Attributes:
      kind: ``OURS`` (a filled circle), ``PUBLISHED`` (a diamond) or ``OTHER`` (a square).
      value: position on the axis.
      span: the ends of the line through it.
      singles: single values, drawn as faint points.
    """

    kind: str
    value: float
    span: tuple[float, float] | None = None
    singles: Sequence[float] = ()


@dataclass(frozen=True)
class Row:
    """A line of a chart; without marks it shows ``text`` instead."""

    label: str
    marks: Sequence[Mark] = ()
    text: str = ""


@dataclass(frozen=True)
class Section:
    """Rows on one axis.

    Attributes:
      title: printed above the rows.
      rows: from the top.
      axis: the name and unit of the axis.
      log: whether the axis is logarithmic.
      reference: a value to draw a line at.
    """

    title: str
    rows: Sequence[Row]
    axis: str
    log: bool = False
    reference: float | None = None


@dataclass
class _Canvas:
    parts: list[str] = field(default_factory=list)

    def text(self, x, y, words, *, anchor="start", css="ink", bold=False, size=_TEXT) -> None:
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{css}" '
            f'font-size="{size}"{weight}>{html.escape(words)}</text>'
        )

    def line(self, x1, y1, x2, y2, css, width=1.0) -> None:
        self.parts.append(
            f'<path d="M{x1:.1f},{y1:.1f} L{x2:.1f},{y2:.1f}" class="{css}" '
            f'stroke-width="{width}" fill="none"/>'
        )

    def mark(self, kind, x, y, *, faint=False) -> None:
        size, fade = (2.5, ' opacity="0.45"') if faint else (5, "")
        if kind == OURS:
            self.parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" class="{kind}"{fade}/>'
            )
            return
        turned = f' transform="rotate(45 {x:.1f} {y:.1f})"' if kind == PUBLISHED else ""
        side = 2 * size - 1.5
        self.parts.append(
            f'<rect x="{x - side / 2:.1f}" y="{y - side / 2:.1f}" width="{side}" height="{side}" '
            f'class="{kind} hollow"{turned}{fade}/>'
        )


def svg(title: str, sections: Iterable[Section], legend: dict[str, str]) -> str:
    """Draws a chart.

    Args:
      title: for screen readers; a page has its own caption.
      sections: from the top.
      legend: the meaning of each kind of mark that occurs.
    """
    canvas = _Canvas()
    y = 24.0
    x = 14.0
    for kind, words in legend.items():
        canvas.mark(kind, x, y - 4)
        canvas.text(x + 11, y, words, css="faint")
        x += 32 + 7.0 * len(words)
    for section in sections:
        y = _draw(canvas, section, y + 28)
    body = "\n".join(canvas.parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 14:.0f}" '
        f'width="{_WIDTH}" font-family="sans-serif" role="img">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_css()}</style>\n"
        f'<rect width="100%" height="100%" rx="8" class="ground"/>\n{body}\n</svg>\n'
    )


def _css() -> str:
    def rules(colours: dict[str, str]) -> str:
        texts = "".join(f".{name}{{fill:{colours[name]}}}" for name in ("ground", "ink", "faint"))
        lines = f".grid{{stroke:{colours['grid']}}}.edge{{stroke:{colours['faint']}}}"
        marks = "".join(
            f".{kind}{{fill:{colours[kind]};stroke:{colours[kind]}}}"
            for kind in (OURS, PUBLISHED, OTHER)
        )
        return texts + lines + marks + f".hollow{{fill:{colours['ground']};stroke-width:2}}"

    return f"{rules(_LIGHT)}@media(prefers-color-scheme:dark){{{rules(_DARK)}}}"


def _draw(canvas: _Canvas, section: Section, y: float) -> float:
    """Draws a section below ``y``; returns the position of its lower end."""
    canvas.text(12, y, section.title, bold=True)
    canvas.text(_WIDTH - 12, y, section.axis, anchor="end", css="faint", size=11)
    ticks = _ticks(section)
    place = _scale(ticks, section.log)
    top, bottom = y + 8, y + 8 + _ROW * len(section.rows)
    for tick in ticks:
        canvas.line(place(tick), top, place(tick), bottom, "grid")
        canvas.text(place(tick), bottom + 14, f"{tick:g}", anchor="middle", css="faint", size=11)
    if section.reference is not None:
        canvas.line(place(section.reference), top, place(section.reference), bottom, "edge", 1.5)
    for number, row in enumerate(section.rows):
        _row(canvas, row, top + _ROW * (number + 0.5), place)
    return bottom + 16


def _row(canvas: _Canvas, row: Row, y: float, place: Callable[[float], float]) -> None:
    canvas.text(12, y + 4, row.label)
    if not row.marks:
        canvas.text(_LEFT, y + 4, row.text or "not run", css="faint")
        return
    for mark in row.marks:
        if mark.span:
            canvas.line(place(mark.span[0]), y, place(mark.span[1]), y, mark.kind, 1.5)
        for single in mark.singles:
            canvas.mark(mark.kind, place(single), y, faint=True)
    for mark in row.marks:
        canvas.mark(mark.kind, place(mark.value), y)
    canvas.text(_WIDTH - 12, y + 4, row.text, anchor="end", css="faint")


def _values(section: Section) -> list[float]:
    found = [section.reference] if section.reference is not None else []
    for row in section.rows:
        for mark in row.marks:
            found += [mark.value, *(mark.span or ()), *mark.singles]
    return found or [0.0, 1.0]


def _ticks(section: Section) -> list[float]:
    """Returns round numbers around all values of a section."""
    low, high = min(_values(section)), max(_values(section))
    if section.log:
        steps = [m * 10.0**e for e in range(-4, 6) for m in (1, 2, 5)]
        first = max(i for i, step in enumerate(steps) if step <= low)
        last = min(i for i, step in enumerate(steps) if step >= high)
        inside = steps[first : last + 1]
        if len(inside) > 7:  # only powers of ten
            decades = [math.floor(math.log10(low)), math.ceil(math.log10(high))]
            inside = [10.0**e for e in range(decades[0], decades[1] + 1)]
        return inside
    reach = max(high - low, 1e-9)
    step = min(
        (m * 10.0**e for e in range(-4, 4) for m in (1, 2, 5)),
        key=lambda one: abs(reach / one - 4.5),
    )
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(step * i, 6) for i in range(first, max(last, first + 1) + 1)]


def _scale(ticks: Sequence[float], log: bool) -> Callable[[float], float]:
    turn = math.log if log else float
    low, high = turn(ticks[0]), turn(ticks[-1])
    width = _WIDTH - _LEFT - _RIGHT - 12

    def place(value: float) -> float:
        return _LEFT + width * (turn(value) - low) / (high - low)

    return place
