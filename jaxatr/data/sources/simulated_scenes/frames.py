"""Whole frames of the simulated sensor: several vehicles on one terrain, with their boxes.

A frame is seen from a height: rows further down are nearer. Sun, sky, soil and air are those of the
frame; paint, temperatures, aspect and the pose of turret and gun are drawn for each vehicle.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from jaxatr.data.sources.simulated import conditions, radiance, raycast, sensor, terrain
from jaxatr.data.sources.simulated.render import Pose, composed, shadows, stand, turned_at_random
from jaxatr.data.sources.simulated.vehicles import Vehicle
from jaxatr.typing import Bool, Float, Int, UInt8

ROWS, COLUMNS = 512, sensor.COLUMNS
_SIDE = COLUMNS  # the terrain is drawn on a square, of which the middle rows are the frame
_ROW0 = (_SIDE - ROWS) // 2
_ANGLE = float(np.radians(sensor.FIELD_OF_VIEW_DEG)) / COLUMNS  # of a pixel, in radians
_NEARER, _FARTHER = 0.8, 1.25  # ranges of a frame's vehicles, as shares of the frame's range
_SKYLINE = 0.12  # share of the frame above which no vehicle stands
_APART = 3.0  # least distance of two vehicles' boxes, in pixels
_TRIES = 40


class Frame(NamedTuple):
    """A rendered frame.

    Attributes:
      image: gray levels.
      boxes: x0, y0, x1, y1 of all that rays meet of each vehicle, gun and hidden parts included.
      ranges: distance of each vehicle in metres.
      placed: which of the vehicles found a place.
    """

    image: UInt8[np.ndarray, "h w 1"]
    boxes: Float[np.ndarray, "n 4"]
    ranges: Float[np.ndarray, " n"]
    placed: Bool[np.ndarray, " m"]


@dataclass(frozen=True)
class Ground:
    """The position of the sensor over level ground.

    Attributes:
      elevation: elevation of the sensor, as seen from the centre of the frame, in radians.
      range_m: distance to the ground at the centre of the frame in metres.
    """

    elevation: float
    range_m: float

    def elevation_at(self, row: float) -> float:
        """Returns the elevation of the sensor as seen from the ground at a row, in radians."""
        return self.elevation + (row - _SIDE / 2) * _ANGLE

    def range_at(self, row: float) -> float:
        """Returns the distance to the ground at a row in metres; infinite above the horizon."""
        elevation = self.elevation_at(row)
        if elevation <= 0:
            return np.inf
        return self.range_m * float(np.sin(self.elevation) / np.sin(elevation))

    def rows(self) -> tuple[float, float]:
        """Returns the first and last row in which vehicles may stand."""
        rows = np.arange(_ROW0 + _SKYLINE * ROWS, _ROW0 + ROWS - 2)
        ranges = np.array([self.range_at(row) for row in rows]) / self.range_m
        near = rows[(ranges >= _NEARER) & (ranges <= _FARTHER)]
        return float(near[0]), float(near[-1])


def render_frame(
    vehicles: Sequence[Vehicle], range_m: float, band: str, seed: tuple[int, ...]
) -> Frame:
    """Renders a frame.

    Args:
      vehicles: the vehicles to place, in the order in which they look for a place. One that finds
        none beside the others is left out.
      range_m: distance to the ground at the centre of the frame in metres.
      band: one of ``sensor.BANDS``.
      seed: non-negative integers that seed all random conditions.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    ground = Ground(float(np.radians(rng.uniform(2.0, 6.0))), range_m)
    poses, placed = _placed(vehicles, ground, rng)
    fine, rough = terrain.textures(rng, _SIDE, sensor.pixel_size(range_m), ground.elevation)
    fields = np.full((2, _SIDE, _SIDE), -1.0, np.float32)  # behind the vehicles, and before them
    for bush in terrain.bushes(rng, _SIDE, sensor.pixel_size(range_m)):
        hidden = [pose for pose in poses if _may_hide(bush, pose)]
        for pose in hidden:
            bush = bush.no_higher(pose.foot, _height(pose))
        terrain.grow(fields[int(bool(hidden))], bush)
    ridge = terrain.ridge(rng, _SIDE, _ROW0 + _SKYLINE * ROWS)
    land = terrain.Terrain(fine, rough, ridge, *terrain.cover_of(fields, rough))
    see = _see_visible if band == "visible" else _see_thermal
    chosen = [vehicle for vehicle, there in zip(vehicles, placed, strict=True) if there]
    levels = see(range_m, rng, poses, chosen, land)
    boxes = np.array([pose.box()[[1, 0, 3, 2]] for pose in poses], float).reshape(-1, 4)
    return Frame(
        sensor.quantise(levels[_ROW0 : _ROW0 + ROWS])[..., None],
        (boxes - [0, _ROW0, 0, _ROW0]).astype(np.float32),
        np.array([ground.range_at(pose.foot) for pose in poses], np.float32),
        placed,
    )


def _placed(
    vehicles: Sequence[Vehicle], ground: Ground, rng: np.random.Generator
) -> tuple[list[Pose], Bool[np.ndarray, " m"]]:
    """Puts vehicles at random places where their boxes are apart and within the frame."""
    poses: list[Pose] = []
    taken: list[Float[np.ndarray, " 4"]] = []
    placed = np.zeros(len(vehicles), bool)
    for number, vehicle in enumerate(vehicles):
        shape, azimuth = turned_at_random(vehicle, rng), rng.uniform(0, 2 * np.pi)
        for _ in range(_TRIES):
            row, column = rng.uniform(*ground.rows()), rng.uniform(0, COLUMNS)
            pixel = sensor.pixel_size(ground.range_at(row))
            elevation = ground.elevation_at(row)
            box = _bounds(shape, raycast.frame(azimuth, elevation), row, column, pixel)
            if _fits(box, taken):
                poses.append(stand(shape, azimuth, elevation, (row, column), pixel, _SIDE))
                taken.append(box)
                placed[number] = True
                break
    return poses, placed


def _bounds(
    shape: raycast.Mesh, axes: Float[np.ndarray, "3 3"], row: float, column: float, pixel: float
) -> Float[np.ndarray, " 4"]:
    """Returns y0, x0, y1, x1 of the solids' bounding boxes."""
    low, high = raycast.extent(shape, axes) / pixel
    return np.array([row - high[1], column + low[0], row - low[1], column + high[0]])


def _fits(box: Float[np.ndarray, " 4"], taken: Sequence[Float[np.ndarray, " 4"]]) -> bool:
    inside = (
        box[0] >= _ROW0 + 1 and box[1] >= 1 and box[2] <= _ROW0 + ROWS - 1 and box[3] <= COLUMNS - 1
    )
    apart = (
        np.any(box[:2] > other[2:] + _APART) or np.any(other[:2] > box[2:] + _APART)
        for other in taken
    )
    return bool(inside and all(apart))


def _height(pose: Pose) -> float:
    box = pose.box()
    return float(box[2] - box[0])


def _may_hide(bush: terrain.Bush, pose: Pose) -> bool:
    """Returns whether a bush stands before a vehicle and may reach it."""
    box = pose.box()
    across = box[1] - 1.2 * bush.wide < bush.column < box[3] + 1.2 * bush.wide
    return bool(across and bush.base >= pose.foot and bush.base - 2.42 * bush.tall < box[2])


def _see_visible(
    range_m: float,
    rng: np.random.Generator,
    poses: Sequence[Pose],
    vehicles: Sequence[Vehicle],
    land: terrain.Terrain,
) -> Float[np.ndarray, "h w"]:
    del vehicles
    day = conditions.daylight(rng)
    irradiance = day.light(0.0).ground
    layers = conditions.visible_layers(rng, day.soil, irradiance)
    cover = land.cover(layers.ground, layers.ridge, layers.bush)
    seen = []
    for pose in poses:
        light, coat = day.light(pose.azimuth), conditions.coat(rng, day.soil)
        shade = radiance.Shade(pose.shape, light.axes)
        seen.append(radiance.reflected(pose.hits, light, coat.paint, shade, day.soil, coat.glint))
        cover *= 1 - shadows(pose, light, shade)
    scene = cover
    for pose in _far_first(poses):
        scene = composed(poses[pose], seen[pose], scene)
    path = sensor.draw_visible(rng, round(range_m), irradiance)
    return path.image(rng, land.hide(scene, layers.bush), float(cover.mean()))


def _see_thermal(
    range_m: float,
    rng: np.random.Generator,
    poses: Sequence[Pose],
    vehicles: Sequence[Vehicle],
    land: terrain.Terrain,
) -> Float[np.ndarray, "h w"]:
    day, bearing = rng.uniform(0, 1), rng.uniform(-np.pi, np.pi)
    height = float(np.radians(rng.uniform(15, 65)))
    layers = conditions.thermal_layers(rng, day)
    cover = land.cover(layers.ground, layers.ridge, layers.bush)
    weather = conditions.heat(rng, day, 0.0)
    seen = []
    for pose, vehicle in zip(poses, vehicles, strict=True):
        heat = replace(
            conditions.heat(rng, day, 0.0),
            sky=weather.sky,
            sun=weather.sun,
            sun_axes=raycast.frame(pose.azimuth + bearing, height),
        )
        seen.append(radiance.temperature(pose.hits, heat, vehicle.engine))
    scene = cover
    for pose in _far_first(poses):
        scene = composed(poses[pose], seen[pose], scene)
    path = sensor.draw_thermal(rng, round(range_m))
    return path.image(rng, land.hide(scene, layers.bush), float(cover.mean()))


def _far_first(poses: Sequence[Pose]) -> Int[np.ndarray, " n"]:
    return np.argsort([pose.foot for pose in poses])
