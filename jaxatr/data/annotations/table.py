"""A table with a row for each box: path, x, y, width, height, label, and perhaps angle and part."""

import math
from pathlib import Path

import numpy as np

from jaxatr.data.annotations.scene import PARTS, Collector
from jaxatr.data.sources.image_folder.table import PATHS, is_table, rows
from jaxatr.scenes import boxes as geometry

reads = is_table
_SIDES = ("x", "y", "width", "height")
_LABELS = ("label", "class", "class_name")


def read(path: Path, into: Collector) -> None:
    """Reads the boxes of a table: x and y of the top left corner, in pixels.

    An angle turns a box about its middle, in degrees, clockwise as seen.

    Raises:
      ValueError: the table cannot be read, or lacks a column.
    """
    columns: dict[str, str] | None = None
    for place, row in rows(path):
        if columns is None:
            columns = {str(name).strip().lower(): name for name in row if name is not None}
            lacking = [one for one in _SIDES if one not in columns]
            if not any(one in columns for one in PATHS):
                lacking.insert(0, "path")
            if lacking:
                raise ValueError(
                    f"{path} has no column {lacking[0]!r} (it has {', '.join(columns) or 'none'}); "
                    "wanted path, x, y, width, height and perhaps label, angle, part"
                )
        where = f"{path.name}: {place}"
        name = _cell(row, columns, *PATHS).replace("\\", "/")
        if not name:
            into.problem(where, "has no path")
            continue
        try:
            x, y, width, height = (float(_cell(row, columns, one)) for one in _SIDES)
            angle = float(_cell(row, columns, "angle") or 0)
        except ValueError as error:
            into.problem(where, f"wanted numbers for x, y, width, height and angle ({error})")
            continue
        part = _cell(row, columns, "part", "split").lower()
        if part and part not in PARTS:
            into.problem(where, f"got the part {part!r}, wanted train, val or test")
            continue
        into.scene(name, PARTS.get(part, ""))
        corners = (x, y, x + width, y + height)
        if not math.isfinite(angle):
            into.problem(where, f"got an angle of {angle}, wanted a finite number")
            continue
        if angle and width > 0 and height > 0:
            corners = geometry.rotated(np.array(corners), angle).ravel().tolist()
        into.box(name, corners, _cell(row, columns, *_LABELS), where)
    if columns is None:
        raise ValueError(f"{path}: the table has no rows")


def _cell(row, columns: dict[str, str], *names: str) -> str:
    for name in names:
        if name in columns:
            cell = row.get(columns[name])
            return "" if cell is None else str(cell).strip()
    return ""
