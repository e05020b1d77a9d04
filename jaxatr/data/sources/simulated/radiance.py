"""Brightness of a vehicle's surfaces: reflected light (visible) and temperature (infrared)."""

from dataclasses import dataclass

import numpy as np

from jaxatr.data.sources.simulated import raycast
from jaxatr.data.sources.simulated.solids import Part
from jaxatr.typing import Float

_SHADOW_STEP = 0.1  # metres between rays cast from the sun
_SHADOW_BIAS = 0.12  # tolerance in metres for surfaces behind the sun's depth map

# By Part: share of the paint's reflectance, and a reflectance that is independent of it.
_REFLECTANCE = np.zeros((len(Part), 2), np.float32)
_REFLECTANCE[Part.BODY] = 1.0, 0.0
_REFLECTANCE[Part.GLASS] = 0.0, 0.05
_REFLECTANCE[Part.RUBBER] = 0.0, 0.05
_REFLECTANCE[Part.TRACK] = 0.15, 0.05
_REFLECTANCE[Part.WHEEL] = 0.7, 0.03
_REFLECTANCE[Part.GUN] = 0.8, 0.0
_REFLECTANCE[Part.DECK] = 0.85, 0.0
_REFLECTANCE[Part.EXHAUST] = 0.3, 0.06
_REFLECTANCE[Part.DARK] = 0.1, 0.02
_REFLECTANCE[Part.ANTENNA] = 0.9, 0.05

# By Part: shares of the excess temperatures of hull, engine, running gear and gun, and of the loss
# to the cold sky.
_WARMTH = np.zeros((len(Part), 5), np.float32)
_WARMTH[Part.BODY] = 1.0, 0.0, 0.0, 0.0, 0.1
_WARMTH[Part.GLASS] = 0.6, 0.0, 0.0, 0.0, 1.0
_WARMTH[Part.RUBBER] = 0.7, 0.0, 1.0, 0.0, 0.0
_WARMTH[Part.TRACK] = 0.7, 0.0, 0.8, 0.0, 0.0
_WARMTH[Part.WHEEL] = 0.7, 0.0, 0.9, 0.0, 0.0
_WARMTH[Part.GUN] = 0.8, 0.0, 0.0, 1.0, 0.1
_WARMTH[Part.DECK] = 1.0, 1.0, 0.0, 0.0, 0.1
_WARMTH[Part.EXHAUST] = 1.0, 2.0, 0.0, 0.0, 0.0
_WARMTH[Part.DARK] = 1.0, 0.3, 0.0, 0.0, 0.0
_WARMTH[Part.ANTENNA] = 0.8, 0.0, 0.0, 0.0, 0.3


@dataclass(frozen=True)
class Light:
    """Illumination by the sun and the sky.

    Attributes:
      direct: irradiance of the sun on a surface that faces it.
      sky: irradiance of the sky on level ground.
      axes: the sun's view of the scene, see :func:`raycast.frame`, in the vehicle's coordinates.
    """

    direct: float
    sky: float
    axes: Float[np.ndarray, "3 3"]

    @property
    def ground(self) -> float:
        """The irradiance of level ground in the open."""
        return self.direct * float(-self.axes[2, 2]) + self.sky


@dataclass(frozen=True)
class Paint:
    """A mottled coat of paint: ``albedo``, depth of its ``mottle`` (0 to 1), random ``waves``."""

    albedo: float
    mottle: float
    waves: Float[np.ndarray, "k 4"]

    def at(self, points: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, " n"]:
        """Returns the paint's reflectance at points in the vehicle's coordinates."""
        phase = points @ self.waves[:, :3].T + self.waves[:, 3]
        return self.albedo * (1 + self.mottle * np.tanh(2 * np.sin(phase).mean(axis=1)))


@dataclass(frozen=True)
class Heat:
    """Excess temperatures over the air's, in kelvin.

    Attributes:
      hull: of the whole hull.
      engine: of the engine deck; the exhaust has twice as much.
      running: of wheels and tracks after driving.
      gun: of a barrel after firing.
      sky: loss of surfaces that face the cold sky.
      sun: gain of surfaces that face the sun.
      sun_axes: the sun's view of the scene, see :func:`raycast.frame`.
    """

    hull: float
    engine: float
    running: float
    gun: float
    sky: float
    sun: float
    sun_axes: Float[np.ndarray, "3 3"]


class Shade:
    """A shadow map: the vehicle's depths as seen from the sun."""

    def __init__(self, shape: raycast.Mesh, axes: Float[np.ndarray, "3 3"]):
        """Casts rays from the sun, given by its ``axes``, at the vehicle."""
        low, high = raycast.extent(shape, axes)
        self._axes, self._low = axes, low
        u = np.arange(low[0], high[0] + _SHADOW_STEP, _SHADOW_STEP, dtype=np.float32)
        v = np.arange(low[1], high[1] + _SHADOW_STEP, _SHADOW_STEP, dtype=np.float32)
        self._depth, _ = raycast.depths(shape, axes, u, v)

    def lit(self, points: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, " n"]:
        """Returns 1 for points lit by the sun and 0 for others."""
        seen = points @ self._axes.T
        cells = np.rint((seen[:, :2] - self._low) / _SHADOW_STEP).astype(np.int32)
        rows, columns = self._depth.shape
        inside = (cells >= 0).all(axis=1) & (cells[:, 0] < columns) & (cells[:, 1] < rows)
        cells = np.where(inside[:, None], cells, 0)
        shadowed = inside & (seen[:, 2] > self._depth[cells[:, 1], cells[:, 0]] + _SHADOW_BIAS)
        return 1.0 - shadowed.astype(np.float32)


def reflected(
    hits: raycast.Hits, light: Light, paint: Paint, shade: Shade, ground: float, glint: float
) -> Float[np.ndarray, " n"]:
    """Computes the visible radiance of the surface that each ray meets.

    Args:
      hits: the surfaces.
      light: sun and sky.
      paint: the vehicle's paint.
      shade: the shadow map.
      ground: reflectance of the ground, which lights surfaces that face down.
      glint: share of the sky that windows mirror.
    """
    share = _REFLECTANCE[hits.parts]
    albedo = share[:, 0] * paint.at(hits.points) + share[:, 1]
    facing = np.maximum(hits.normals @ -light.axes[2], 0)
    facing *= shade.lit(hits.points)
    up = 0.5 + 0.5 * hits.normals[:, 2]
    # Low parts see less of the sky: the ground and the vehicle itself block it.
    openness = np.clip(0.35 + 0.5 * hits.points[:, 2], 0.35, 1.0)
    sky = light.sky * openness * (up + (1 - up) * ground)
    bounced = light.direct * float(-light.axes[2, 2]) * ground * (1 - up) * openness
    mirrored = np.where(hits.parts == Part.GLASS, glint * light.sky, 0)
    return (albedo * (light.direct * facing + sky + bounced) + mirrored).astype(np.float32)


def temperature(
    hits: raycast.Hits, heat: Heat, engine: tuple[float, float, float]
) -> Float[np.ndarray, " n"]:
    """Computes the apparent excess temperature, in kelvin, of the surface that each ray meets.

    Args:
      hits: the surfaces.
      heat: the vehicle's thermal state.
      engine: position of the engine, which warms the skin around it.
    """
    state = np.array([heat.hull, heat.engine, heat.running, heat.gun, 0.0], np.float32)
    warmth = _WARMTH[hits.parts]
    away = np.sum(np.square(hits.points - np.asarray(engine, np.float32)), axis=1)
    through = 0.45 * heat.engine * np.exp(-away / (2 * 0.7**2))
    cooling = heat.sky * warmth[:, 4] * (0.5 + 0.5 * hits.normals[:, 2])
    sunned = heat.sun * np.maximum(hits.normals @ -heat.sun_axes[2], 0)
    return (warmth @ state + through - cooling + sunned).astype(np.float32)
