"""Convex solids as intersections of half-spaces, each tagged with a part of a vehicle.

Coordinates are the vehicle's, in metres: x forward, y to its left, z up from the ground.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from jaxatr.typing import Float

Interval = tuple[float, float]
Polygon = Sequence[tuple[float, float]]


class Part(enum.IntEnum):
    """The kind of a solid, which determines its brightness and temperature."""

    BODY = 0
    GLASS = 1
    RUBBER = 2
    TRACK = 3
    WHEEL = 4
    GUN = 5
    DECK = 6
    EXHAUST = 7
    DARK = 8
    ANTENNA = 9


@dataclass(frozen=True)
class Solid:
    """The points x with ``normals @ x <= offsets``.

    Attributes:
      part: kind of the solid.
      normals: outward unit normals, [p, 3].
      offsets: distances of the faces' planes from the origin, [p].
      corners: corners of a bounding box, [8, 3].
      turns: whether it moves with the turret.
      lifts: whether it moves with the gun, and therefore also with the turret.
    """

    part: Part
    normals: np.ndarray
    offsets: np.ndarray
    corners: np.ndarray
    turns: bool = False
    lifts: bool = False


def prism(
    part: Part,
    *,
    side: Polygon = (),
    front: Polygon = (),
    plan: Polygon = (),
    x: Interval | None = None,
    y: Interval | None = None,
    z: Interval | None = None,
) -> Solid:
    """Creates the solid inside all of the given outlines and intervals.

    Args:
      part: kind of the solid.
      side: convex outline in (x, z).
      front: convex outline in (y, z).
      plan: convex outline in (x, y).
      x: interval along x.
      y: interval along y.
      z: interval along z.
    """
    normals: list[np.ndarray] = []
    offsets: list[float] = []
    low, high = np.full(3, -np.inf), np.full(3, np.inf)

    def cut(axes: tuple[int, ...], edges: np.ndarray, distances: np.ndarray) -> None:
        for edge, distance in zip(edges, distances, strict=True):
            normal = np.zeros(3)
            normal[list(axes)] = edge
            normals.append(normal)
            offsets.append(distance)

    for axes, outline in (((0, 2), side), ((1, 2), front), ((0, 1), plan)):
        if len(outline):
            points = np.asarray(outline, float)
            cut(axes, *_edges(points))
            for axis, values in zip(axes, points.T, strict=True):
                low[axis] = max(low[axis], values.min())
                high[axis] = min(high[axis], values.max())
    for axis, interval in enumerate((x, y, z)):
        if interval is not None:
            cut((axis,), np.array([[-1.0], [1.0]]), np.array([-interval[0], interval[1]]))
            low[axis], high[axis] = max(low[axis], interval[0]), min(high[axis], interval[1])
    return Solid(part, np.array(normals), np.array(offsets), _box_corners(low, high))


def cylinder(
    part: Part,
    axis: str,
    centre: tuple[float, float],
    radius: float,
    along: Interval,
    sides: int = 12,
) -> Solid:
    """Creates a cylinder along ``"x"``, ``"y"`` or ``"z"``, as a prism with ``sides`` sides.

    Args:
      part: kind of the solid.
      axis: the axis of the cylinder.
      centre: its centre in the two other coordinates, in the order x, y, z.
      radius: in metres.
      along: its ends along the axis.
      sides: a multiple of 4, so that it is exactly ``2 * radius`` wide in both directions.
    """
    angles = 2 * np.pi * np.arange(sides) / sides
    outline = [(centre[0] + radius * np.cos(a), centre[1] + radius * np.sin(a)) for a in angles]
    name = {"x": "front", "y": "side", "z": "plan"}[axis]
    return prism(part, **{name: outline, axis: along})


def frustum(
    part: Part,
    centre: tuple[float, float],
    radii: tuple[float, float],
    z: Interval,
    *,
    width: float = 1.0,
    sides: int = 12,
) -> Solid:
    """Creates an upright truncated cone, such as a low turret.

    Args:
      part: kind of the solid.
      centre: (x, y) of its axis.
      radii: radii at the bottom and at the top.
      z: heights of the bottom and the top.
      width: ratio of its extent in y to that in x.
      sides: a multiple of 4.
    """
    angles = 2 * np.pi * (np.arange(sides) + 0.5) / sides
    apothem = np.cos(np.pi / sides)
    slope = apothem * (radii[0] - radii[1]) / (z[1] - z[0])
    faces = np.stack([np.cos(angles), np.sin(angles) / width, np.full(sides, slope)], axis=1)
    at = np.array([*centre, z[0]])
    normals = np.concatenate([faces, [[0, 0, -1], [0, 0, 1]]])
    offsets = np.concatenate([faces @ at + apothem * radii[0], [-z[0], z[1]]])
    lengths = np.linalg.norm(normals, axis=1)
    reach = max(radii) * np.array([1.0, width])
    corners = _box_corners(np.array([*(at[:2] - reach), z[0]]), np.array([*(at[:2] + reach), z[1]]))
    return Solid(part, normals / lengths[:, None], offsets / lengths, corners)


def pair(solid: Solid) -> list[Solid]:
    """Returns ``solid`` and its mirror image on the vehicle's other side."""
    flip = np.array([1.0, -1.0, 1.0])
    return [solid, replace(solid, normals=solid.normals * flip, corners=solid.corners * flip)]


def turned(
    solid: Solid, rotation: Float[np.ndarray, "3 3"], pivot: Float[np.ndarray, " 3"]
) -> Solid:
    """Returns ``solid`` rotated about ``pivot``."""
    normals = solid.normals @ rotation.T
    offsets = solid.offsets + normals @ pivot - solid.normals @ pivot
    corners = (solid.corners - pivot) @ rotation.T + pivot
    return replace(solid, normals=normals, offsets=offsets, corners=corners)


def _edges(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the outward unit normals of a convex polygon's edges and their offsets."""
    along = np.roll(points, -1, axis=0) - points
    normals = np.stack([along[:, 1], -along[:, 0]], axis=1)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    offsets = np.sum(normals * points, axis=1)
    outward = np.where(normals @ points.mean(axis=0) < offsets, 1.0, -1.0)
    normals, offsets = normals * outward[:, None], offsets * outward
    if np.any(points @ normals.T > offsets + 1e-9):
        raise ValueError(f"outline: got {points.tolist()}, wanted a convex polygon")
    return normals, offsets


def _box_corners(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    picks = np.stack(np.meshgrid([0, 1], [0, 1], [0, 1], indexing="ij"), axis=-1).reshape(8, 3)
    return np.where(picks == 1, high, low)
