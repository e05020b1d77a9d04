"""A target's box in its frame, from the best of three sources available."""

import math
from typing import NamedTuple

from jaxatr.data.sources.dsiac.agt import AgtTarget
from jaxatr.data.sources.dsiac.bbox_met import Corner

# In order of preference.
SOURCES = ("pixbox", "metric", "dimensions")


class Box(NamedTuple):
    """Rows ``y0`` to ``y1`` and columns ``x0`` to ``x1`` of a frame, the ends exclusive.

    ``source`` is one of :data:`SOURCES`; ``cut`` means that the target extends beyond the frame.
    """

    y0: int
    x0: int
    y1: int
    x1: int
    source: str
    cut: bool


def find_box(
    target: AgtTarget,
    corner: Corner | None,
    size_m: tuple[float, float, float] | None,
    *,
    range_m: float,
    fov_deg: tuple[float, float],
    rows: int,
    columns: int,
) -> Box | str:
    """Returns a target's box in its frame, or the reason why there is none.

    The target's ``PixBox`` is used if it has one. Otherwise the box is centred on its ``PixLoc``.
    With a corner UL from the metric file, its width and height are ``2·|PixLoc - UL|``. Without
    one, its width is that of a vehicle of the given size at that range and aspect,

    ``columns · 2·atan((|W·cos a| + |L·sin a|) / 2r) / fov``,

    and its height accordingly. Pixels are assumed to count from 0.

    Args:
      target: the target from the ground truth.
      corner: column and row of the box's corner from the metric file, or None.
      size_m: length, width and height of the target's class.
      range_m: range used if the target has none of its own.
      fov_deg: horizontal and vertical field of view.
      rows: number of rows of the frame.
      columns: number of columns of the frame.
    """
    if target.box is not None:
        x0, y0, x1, y1 = target.box
        return _clipped((y0, x0, y1 + 1, x1 + 1), "pixbox", rows, columns)
    if target.pixel is None:
        return "no PixLoc"
    x, y = target.pixel
    if corner is not None:
        half_width, half_height = abs(x - corner[0]), abs(y - corner[1])
        edges = (y - half_height, x - half_width, y + half_height, x + half_width)
        return _clipped(edges, "metric", rows, columns)
    if size_m is None or target.aspect_deg is None:
        return "no box, and no size or aspect to estimate it from"
    length, width, height = size_m
    aspect = math.radians(target.aspect_deg)
    across = abs(width * math.cos(aspect)) + abs(length * math.sin(aspect))
    distance = target.range_m or range_m
    wide = columns * 2 * math.atan(across / (2 * distance)) / math.radians(fov_deg[0])
    high = rows * 2 * math.atan(height / (2 * distance)) / math.radians(fov_deg[1])
    middle_y, middle_x = y + 0.5, x + 0.5  # the pixel's centre
    edges = (middle_y - high / 2, middle_x - wide / 2, middle_y + high / 2, middle_x + wide / 2)
    return _clipped(edges, "dimensions", rows, columns)


def _clipped(
    edges: tuple[float, float, float, float], source: str, rows: int, columns: int
) -> Box | str:
    y0, x0, y1, x1 = edges
    if not (y0 < y1 and x0 < x1):
        return "an empty box"
    full = (math.floor(y0), math.floor(x0), math.ceil(y1), math.ceil(x1))
    inside = (max(full[0], 0), max(full[1], 0), min(full[2], rows), min(full[3], columns))
    if inside[0] >= inside[2] or inside[1] >= inside[3]:
        return "a box outside of the frame"
    return Box(*inside, source, inside != full)
