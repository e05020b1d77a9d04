"""Boxes: x0, y0, x1, y1 in pixels, with continuous edges.

The pixel in row r and column c covers ``[c, c + 1] x [r, r + 1]``, so the box of a whole image is
0, 0, width, height. A box with ``x1 <= x0`` or ``y1 <= y0`` is empty.

NumPy arrays give NumPy arrays of their precision, and integers floats, which do not wrap around;
jax's arrays may be traced and differentiated.
Leading axes broadcast: ``iou(boxes[:, None], others)`` compares each with each.
"""

from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from jaxatr.typing import ArrayLike, Shaped

Boxes: TypeAlias = Shaped[ArrayLike, "... 4"]
Corners: TypeAlias = Shaped[ArrayLike, "... n 2"]
Values: TypeAlias = Shaped[ArrayLike, "..."] | np.floating  # NumPy gives numbers, not 0-d arrays


def area(boxes: Boxes) -> Values:
    """Computes areas in square pixels; 0 for an empty box.

    >>> import numpy as np
    >>> area(np.array([[1.0, 2.0, 4.0, 4.0], [5.0, 0.0, 4.0, 9.0]]))
    array([6., 0.])
    """
    width, height = _sides(boxes)
    return width * height


def intersection(first: Boxes, second: Boxes) -> Values:
    """Computes the areas that boxes share with others; the leading axes broadcast."""
    return area(_common(first, second))


def iou(first: Boxes, second: Boxes) -> Values:
    """Computes intersections over unions; 0 with an empty box. The leading axes broadcast.

    >>> import numpy as np
    >>> iou(np.array([0.0, 0.0, 2.0, 2.0]), np.array([[1.0, 0.0, 3.0, 2.0], [2.0, 0.0, 3.0, 1.0]]))
    array([0.33333333, 0.        ])
    """
    shared = intersection(first, second)
    return _ratio(shared, area(first) + area(second) - shared)


def covered(first: Boxes, second: Boxes) -> Values:
    """Computes the shares of the first boxes that lie in the second; 0 of an empty box."""
    shared = intersection(first, second)
    return _ratio(shared, area(first) + 0 * shared)


def giou(first: Boxes, second: Boxes) -> Values:
    """Computes generalised intersections over unions (Rezatofighi et al. 2019), in [-1, 1].

    It is the IoU less the share of the smallest box around both that neither covers, so that it
    has a gradient where boxes do not meet. Two empty boxes at one place have 0.

    >>> import numpy as np
    >>> float(giou(np.array([0.0, 0.0, 1.0, 1.0]), np.array([2.0, 0.0, 4.0, 1.0])))
    -0.25
    """
    shared = intersection(first, second)
    union = area(first) + area(second) - shared
    around = area(_around(first, second))
    return _ratio(shared, union) - _ratio(around - union, around)


def of_xywh(boxes: Boxes) -> Boxes:
    """Converts x, y of the top left corner, width and height (COCO) to corners."""
    x, y, width, height = _columns(boxes)
    return _stacked(x, y, x + width, y + height)


def to_xywh(boxes: Boxes) -> Boxes:
    """Converts corners to x, y of the top left corner, width and height (COCO)."""
    x0, y0, x1, y1 = _columns(boxes)
    return _stacked(x0, y0, x1 - x0, y1 - y0)


def of_centres(boxes: Boxes) -> Boxes:
    """Converts x, y of the centre, width and height (YOLO) to corners."""
    x, y, width, height = _columns(boxes)
    return _stacked(x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def to_centres(boxes: Boxes) -> Boxes:
    """Converts corners to x, y of the centre, width and height (YOLO)."""
    x0, y0, x1, y1 = _columns(boxes)
    return _stacked((x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0)


def clipped(boxes: Boxes, width: int | float | Values, height: int | float | Values) -> Boxes:
    """Clips boxes to an image; those outside of it become empty."""
    x0, y0, x1, y1 = _columns(boxes)
    space = _space(x0)
    return _stacked(
        space.clip(x0, 0, width),
        space.clip(y0, 0, height),
        space.clip(x1, 0, width),
        space.clip(y1, 0, height),
    )


def rotated(boxes: Boxes, degrees: float | Values) -> Corners:
    """Turns boxes about their centres, clockwise as seen, because y points down.

    Returns:
      x and y of the four corners, from the top left one clockwise.
    """
    space = _space(boxes)
    x0, y0, x1, y1 = _columns(boxes)
    middle = space.stack([(x0 + x1) / 2, (y0 + y1) / 2], axis=-1)[..., None, :]
    corners = space.stack(
        [_pair(space, x0, y0), _pair(space, x1, y0), _pair(space, x1, y1), _pair(space, x0, y1)],
        axis=-2,
    )
    turn = space.asarray(degrees)[..., None] * (space.pi / 180)
    x, y = (corners - middle)[..., 0], (corners - middle)[..., 1]
    cos, sin = space.cos(turn), space.sin(turn)
    return middle + _pair(space, x * cos - y * sin, x * sin + y * cos)


def hull(corners: Corners) -> Boxes:
    """Returns the smallest upright boxes around polygons, given by x and y of their corners."""
    space = _space(corners)
    return space.concat([space.min(corners, axis=-2), space.max(corners, axis=-2)], axis=-1)


def polygon_area(corners: Corners) -> Values:
    """Computes the areas of simple polygons, by the shoelace formula, in either direction.

    >>> import numpy as np
    >>> float(polygon_area(np.array([[1.0, 0.0], [2.0, 1.0], [1.0, 2.0], [0.0, 1.0]])))
    2.0
    """
    space, corners = _space(corners), _floats(corners)
    corners = corners - corners[..., :1, :]  # far from the origin, products would lose digits
    x, y = corners[..., 0], corners[..., 1]
    after_x, after_y = space.roll(x, -1, axis=-1), space.roll(y, -1, axis=-1)
    return space.abs(space.sum(x * after_y - after_x * y, axis=-1)) / 2


def _space(array: Values) -> ModuleType:
    """Returns the functions for an array: NumPy's or jax's."""
    return array.__array_namespace__()


def _floats(boxes: Any) -> Any:
    return boxes.astype(float) if _space(boxes).isdtype(boxes.dtype, "integral") else boxes


def _columns(boxes: Boxes) -> tuple[Values, Values, Values, Values]:
    boxes = _floats(boxes)
    return boxes[..., 0], boxes[..., 1], boxes[..., 2], boxes[..., 3]


def _stacked(*columns: Values) -> Boxes:
    return _space(columns[0]).stack(columns, axis=-1)


def _pair(space: ModuleType, x: Values, y: Values) -> ArrayLike:
    return space.stack([x, y], axis=-1)


def _sides(boxes: Boxes) -> tuple[Values, Values]:
    space, boxes = _space(boxes), _floats(boxes)
    sides = space.maximum(boxes[..., 2:] - boxes[..., :2], 0)
    return sides[..., 0], sides[..., 1]


def _common(first: Boxes, second: Boxes) -> Boxes:
    space = _space(first + 0 * second)
    low = space.maximum(first[..., :2], second[..., :2])
    high = space.minimum(first[..., 2:], second[..., 2:])
    return space.concat([low, high], axis=-1)


def _around(first: Boxes, second: Boxes) -> Boxes:
    space = _space(first + 0 * second)
    low = space.minimum(first[..., :2], second[..., :2])
    high = space.maximum(first[..., 2:], second[..., 2:])
    return space.concat([low, high], axis=-1)


def _ratio(share: Values, whole: Values) -> Values:
    """Divides, with 0 and no gradient where the whole is 0; NaN stays NaN."""
    space = _space(whole)
    nothing = whole == 0
    return space.where(nothing, 0, share / space.where(nothing, 1, whole))
