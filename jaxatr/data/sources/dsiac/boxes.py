"""A target's box in its frame, from whichever of three sources there is."""

import math
from typing import NamedTuple

from jaxatr.data.sources.dsiac.agt import Target
from jaxatr.data.sources.dsiac.bbox_met import Corner

# In the order in which they are trusted.
SOURCES = ("pixbox", "metric", "dimensions")


class Box(NamedTuple):
    """Rows ``y0`` to ``y1`` and columns ``x0`` to ``x1`` of a frame, without the last ones.

    ``source`` is of :data:`SOURCES`, and ``cut`` says that the target reaches out of the frame.
    """

    y0: int
    x0: int
    y1: int
    x1: int
    source: str
    cut: bool


def find_box(
    target: Target,
    corner: Corner | None,
    size_m: tuple[float, float, float] | None,
    *,
    range_m: float,
    fov_deg: tuple[float, float],
    rows: int,
    columns: int,
) -> Box | str:
    """Returns where a target is in its frame, or why that cannot be told.

    The target's own ``PixBox`` is used if it has one. Else the box is centred on its ``PixLoc``: by
    the metric file's corner UL it is ``2·|PixLoc - UL|`` wide and high, and without one it is what
    a vehicle of that size fills at that range and aspect,

    ``columns · 2·atan((|W·cos a| + |L·sin a|) / 2r) / fov``,

    and likewise its height. That pixels count from 0 is inferred.

    Args:
      target: from the ground truth.
      corner: column and row from the metric file.
      size_m: length, width and height of its class.
      range_m: of the target, where it does not say its own.
      fov_deg: horizontal and vertical field of view.
      rows: of the frame.
      columns: of the frame.
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
    middle_y, middle_x = y + 0.5, x + 0.5  # of the pixel
    edges = (middle_y - high / 2, middle_x - wide / 2, middle_y + high / 2, middle_x + wide / 2)
    return _clipped(edges, "dimensions", rows, columns)


def _clipped(
    edges: tuple[float, float, float, float], source: str, rows: int, columns: int
) -> Box | str:
    y0, x0, y1, x1 = edges
    if not (y0 < y1 and x0 < x1):
        return "an empty box"
    whole = (math.floor(y0), math.floor(x0), math.ceil(y1), math.ceil(x1))
    inside = (max(whole[0], 0), max(whole[1], 0), min(whole[2], rows), min(whole[3], columns))
    if inside[0] >= inside[2] or inside[1] >= inside[3]:
        return "a box outside of the frame"
    return Box(*inside, source, inside != whole)
