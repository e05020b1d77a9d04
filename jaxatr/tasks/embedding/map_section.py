"""The report section with a two-dimensional map of an embedding."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxatr import openset
from jaxatr.reporting import axes, charts
from jaxatr.reporting.kind import Numbered, Section
from jaxatr.tasks.embedding.recorded_embedding import EmbeddingMap, RecordedEmbedding
from jaxatr.typing import Float

SHAPES = (
    "M-2.5 0A2.5 2.5 0 1 0 2.5 0A2.5 2.5 0 1 0-2.5 0Z",  # circle
    "M-2.2-2.2H2.2V2.2H-2.2Z",  # square
    "M0-3L2.8 2H-2.8Z",  # triangle
    "M0-3.2L3.2 0L0 3.2L-3.2 0Z",  # diamond
    "M-.9-2.8H.9V-.9H2.8V.9H.9V2.8H-.9V.9H-2.8V-.9H-.9Z",  # plus
    "M0 3L2.8-2H-2.8Z",  # triangle, upside down
    "M0-3.4L.9-1.1L3.2-1L1.4.4L2 2.7L0 1.4L-2 2.7L-1.4.4L-3.2-1L-.9-1.1Z",  # star
)
"""Outlines of the points. Their number is coprime to that of the colours, so that colour and shape
together distinguish 56 classes."""

_ROOM = 1.06  # size of the plot relative to the points' extent, so that no point is cut off


class Group(NamedTuple):
    """The chips of a class on the map.

    Attributes:
      name: name of the class.
      kind: ``"trained"`` or ``"new"``.
      colour, shape: indices of a colour of the style sheet and of one of :data:`SHAPES`.
      rows: rows of the test examples.
      drawn: ``[m, 2]``, coordinates in the drawing.
      points: ``[m, 2]``, coordinates on the map.
    """

    name: str
    kind: str
    colour: int
    shape: int
    rows: list[int]
    drawn: Float[np.ndarray, "m 2"]
    points: Float[np.ndarray, "m 2"]


def embedding_map(runs: Sequence[Numbered[RecordedEmbedding]]) -> Section | None:
    """Draws the first two principal components of test chips, which are shown on hover."""
    maps = [_map(number, run, run.map) for number, run in runs if run.map is not None]
    return Section("map", "Embedding map", {"maps": maps, "shapes": SHAPES}) if maps else None


def _map(number: int, run: RecordedEmbedding, laid_out: EmbeddingMap) -> dict[str, Any]:
    points = laid_out.points.astype(np.float64)
    x, y = _plane(points)
    groups = _groups(run, laid_out.rows, points, charts.placed(x, y, points))
    table = _table(groups)
    words = f"{len(points)} of {len(run.labels)} test chips, of {len(groups)} classes."
    if len(groups) > 1:
        row = min(table, key=lambda row: row["apart"])
        words += f" Nearest to each other: {row['name']} and {row['nearest']}, their centres "
        words += f"{row['apart']:.3g} apart."
    words += " The table below the map says where each class lies."
    title = f"Embedding map of {run.name}"
    drawing = charts.chart(f"map-{number}", title, words, x, y, [])
    return {"number": number, "run": run, "chart": drawing, "groups": groups, "table": table}


def _plane(points: Float[np.ndarray, "m 2"]) -> tuple[axes.Axis, axes.Axis]:
    """Returns two axes of the same scale, so that distances are equal in every direction."""
    low, high = points.min(axis=0), points.max(axis=0)
    size = np.array([charts.PLOT_WIDTH, charts.PLOT_HEIGHT])
    half = _ROOM * float(np.max((high - low) / size)) * size / 2
    labels = ("first principal component", "second principal component")
    ends = zip(labels, (low + high) / 2 - half, (low + high) / 2 + half, strict=True)
    x, y = (axes.linear(label, float(start), float(end)) for label, start, end in ends)
    return x, y


def _groups(
    run: RecordedEmbedding, rows: np.ndarray, points: np.ndarray, drawn: np.ndarray
) -> list[Group]:
    """Returns the classes, trained ones first. A class looks the same in every run."""
    of_row = np.array([run.thumbnails[int(row)].name for row in rows])
    everything = sorted({*run.classes, *run.evaluation["unknown"], *of_row.tolist()})
    groups = []
    for name in dict.fromkeys([*run.classes, *everything]):
        chosen = np.flatnonzero(of_row == name)
        if not len(chosen):
            continue
        place = everything.index(name)
        new = run.labels[rows[chosen[0]]] == openset.UNKNOWN
        groups.append(
            Group(
                name,
                "new" if new else "trained",
                place % charts.COLOURS,
                place % len(SHAPES),
                rows[chosen].tolist(),
                drawn[chosen],
                points[chosen],
            )
        )
    return groups


def _table(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Returns the map as a table: centre, spread and nearest other class of each class."""
    centres = np.array([group.points.mean(axis=0) for group in groups])
    apart = np.linalg.norm(centres[:, None] - centres, axis=-1)
    np.fill_diagonal(apart, np.inf)
    return [
        {
            "name": group.name,
            "kind": group.kind,
            "count": len(group.rows),
            "centre": centre,
            "spread": float(np.sqrt(np.mean(np.sum((group.points - centre) ** 2, axis=1)))),
            "nearest": groups[int(np.argmin(others))].name if len(groups) > 1 else "–",
            "apart": float(np.min(others)),
        }
        for group, centre, others in zip(groups, centres, apart, strict=True)
    ]
