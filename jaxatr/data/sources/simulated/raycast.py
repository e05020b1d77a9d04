"""Orthographic ray casting of convex solids into a depth buffer.

At 1000 m a vehicle subtends half a degree, so rays can be taken as parallel. The ray through (u, v)
crosses a face's plane at a depth that is affine in u and v. It enters a convex solid at the last of
the faces towards the viewer and leaves it at the first of the faces away from the viewer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxatr.data.sources.simulated.solids import Solid
from jaxatr.typing import Float, Int

_MISS = 1e6  # metres, beyond any solid
_GRAZING = 1e-5  # least |cosine| between a ray and a face


@dataclass(frozen=True)
class Mesh:
    """Solids as arrays.

    Attributes:
      normals: outward unit normals of the faces, padded to the same number per solid.
      offsets: distances of the faces' planes from the origin.
      faces: number of faces of each solid, without padding.
      corners: corners of a bounding box of each solid.
      parts: the :class:`Part` of each solid.
    """

    normals: Float[np.ndarray, "s p 3"]
    offsets: Float[np.ndarray, "s p"]
    faces: Int[np.ndarray, " s"]
    corners: Float[np.ndarray, "s 8 3"]
    parts: Int[np.ndarray, " s"]


@dataclass(frozen=True)
class Hits:
    """The first surfaces met by the n rays of a lattice that meet any.

    Attributes:
      index: flat indices of the rays in the lattice.
      points: positions of the hits, in metres.
      normals: outward normals of the surfaces.
      parts: the :class:`Part` of each surface.
    """

    index: Int[np.ndarray, " n"]
    points: Float[np.ndarray, "n 3"]
    normals: Float[np.ndarray, "n 3"]
    parts: Int[np.ndarray, " n"]


def mesh(solids: Sequence[Solid]) -> Mesh:
    """Converts solids to arrays."""
    faces = np.array([len(solid.offsets) for solid in solids])
    normals = np.zeros((len(solids), faces.max(), 3), np.float32)
    offsets = np.zeros((len(solids), faces.max()), np.float32)
    for row, solid in enumerate(solids):
        normals[row, : faces[row]], offsets[row, : faces[row]] = solid.normals, solid.offsets
    corners = np.stack([solid.corners for solid in solids]).astype(np.float32)
    return Mesh(normals, offsets, faces, corners, np.array([s.part for s in solids]))


def frame(azimuth: float, elevation: float) -> Float[np.ndarray, "3 3"]:
    """Returns a viewer's axes right, up and away, as rows in the vehicle's coordinates.

    Args:
      azimuth: direction to the viewer in radians, from the vehicle's front towards its left; this
        is the aspect of a vehicle that turns clockwise.
      elevation: elevation of the viewer above the horizontal, in radians.
    """
    sin_a, cos_a, sin_e, cos_e = *_sincos(azimuth), *_sincos(elevation)
    right = [-sin_a, cos_a, 0.0]
    up = [-sin_e * cos_a, -sin_e * sin_a, cos_e]
    away = [-cos_e * cos_a, -cos_e * sin_a, -sin_e]
    return np.array([right, up, away], np.float32)


def extent(shape: Mesh, axes: Float[np.ndarray, "3 3"]) -> Float[np.ndarray, "2 2"]:
    """Returns the least and greatest (u, v) of the solids' bounding boxes."""
    across = shape.corners.reshape(-1, 3) @ axes[:2].T
    return np.stack([across.min(axis=0), across.max(axis=0)])


def depths(
    shape: Mesh,
    axes: Float[np.ndarray, "3 3"],
    u: Float[np.ndarray, " w"],
    v: Float[np.ndarray, " h"],
) -> tuple[Float[np.ndarray, "h w"], Int[np.ndarray, "h w"]]:
    """Computes the depth of the first surface (1e6 for none) and the number of its solid (or -1).

    Args:
      shape: the solids.
      axes: the viewer's axes, see :func:`frame`.
      u: ascending, evenly spaced sample positions to the right.
      v: ascending, evenly spaced sample positions upward.
    """
    depth = np.full((len(v), len(u)), _MISS, np.float32)
    owner = np.full((len(v), len(u)), -1, np.int16)
    planes, order, fronts = _crossings(shape, axes)
    planes = np.take_along_axis(planes, order[..., None], axis=1)
    across = shape.corners @ axes[:2].T
    low, high = across.min(axis=1), across.max(axis=1)
    left, right = np.searchsorted(u, low[:, 0]), np.searchsorted(u, high[:, 0])
    bottom, top = np.searchsorted(v, low[:, 1]), np.searchsorted(v, high[:, 1])
    for solid in np.flatnonzero((left < right) & (bottom < top)):
        columns, rows = slice(left[solid], right[solid]), slice(bottom[solid], top[solid])
        nearest, count = depth[rows, columns], fronts[solid]
        face = planes[solid, : shape.faces[solid], :, None]
        by_column = face[:, 0] + face[:, 1] * u[columns]
        crossed = by_column[:, None] + face[:, 2, :, None] * v[rows, None]
        first = np.maximum.reduce(crossed[:count])
        seen = (first < np.minimum.reduce(crossed[count:])) & (first < nearest)
        np.copyto(nearest, first, where=seen)
        np.copyto(owner[rows, columns], solid, where=seen)
    return depth, owner


def cast(
    shape: Mesh,
    axes: Float[np.ndarray, "3 3"],
    u: Float[np.ndarray, " w"],
    v: Float[np.ndarray, " h"],
) -> Hits:
    """Finds the visible surfaces on the lattice of ``v`` × ``u``.

    Args:
      shape: the solids.
      axes: the viewer's axes, see :func:`frame`.
      u: ascending, evenly spaced sample positions to the right.
      v: ascending, evenly spaced sample positions upward.
    """
    depth, owner = depths(shape, axes, u, v)
    index = np.flatnonzero(owner >= 0)
    solid = owner.ravel()[index]
    place = np.stack([u[index % len(u)], v[index // len(u)], depth.ravel()[index]], axis=1)
    planes, order, fronts = _crossings(shape, axes)
    crossing = np.take_along_axis(planes, order[..., None], axis=1)[solid, : fronts.max()]
    crossed = crossing[..., 0] + crossing[..., 1] * place[:, :1] + crossing[..., 2] * place[:, 1:2]
    crossed[np.arange(fronts.max()) >= fronts[solid, None]] = -_MISS
    face = order[solid, crossed.argmax(axis=1)]
    return Hits(index, place @ axes, shape.normals[solid, face], shape.parts[solid])


def _crossings(shape: Mesh, axes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the depths of the faces as coefficients of (1, u, v), [s, p, 3].

    Also returns the order, [s, p], that puts the faces towards the viewer first, then those away
    from it, then the padding; and the number of faces towards the viewer, [s].
    """
    right, up, away = np.moveaxis(shape.normals @ axes.T, -1, 0)
    padding = np.arange(away.shape[1]) >= shape.faces[:, None]
    order = np.argsort(np.where(padding, 2, away >= 0), axis=1, kind="stable")
    fronts = np.sum((away < 0) & ~padding, axis=1)
    away = np.where(away < 0, np.minimum(away, -_GRAZING), np.maximum(away, _GRAZING))
    return np.stack([shape.offsets, -right, -up], axis=-1) / away[..., None], order, fronts


def _sincos(angle: float) -> tuple[float, float]:
    return float(np.sin(angle)), float(np.cos(angle))
