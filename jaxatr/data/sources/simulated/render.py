"""Rendering of single views, from drawn conditions to a chip."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from jaxatr.data.sources.simulated import conditions, radiance, raycast, sensor, terrain
from jaxatr.data.sources.simulated.framing import Framing, framing
from jaxatr.data.sources.simulated.vehicles import FLEET, Vehicle
from jaxatr.typing import Float, Int

_FINEST = 0.1  # largest distance between rays in metres
_HIDDEN = 0.5  # least share of a chip pixel that shows the target, to count as target


@dataclass(frozen=True)
class View:
    """A view of a vehicle.

    Attributes:
      vehicle: index into ``FLEET``, or a vehicle that does not belong to the fleet.
      aspect_deg: degrees clockwise; 0 faces the sensor.
      range_m: distance from the sensor in metres.
      band: index into ``sensor.BANDS``.
      seed: non-negative integers that seed all random conditions of the view.
      shared: for a view in a track, the integers that seed the conditions constant along the track:
        paint, light, weather, temperatures, the sensor's height and the turret's pose.
    """

    vehicle: int | Vehicle
    aspect_deg: float
    range_m: int
    band: int
    seed: tuple[int, ...]
    shared: tuple[int, ...] | None = None

    @property
    def seen(self) -> Vehicle:
        """The vehicle itself."""
        return self.vehicle if isinstance(self.vehicle, Vehicle) else FLEET[self.vehicle]

    @property
    def label(self) -> int:
        """Index into ``FLEET``, or -1 for a vehicle that does not belong to it."""
        return -1 if isinstance(self.vehicle, Vehicle) else self.vehicle


@dataclass(frozen=True)
class Lattice:
    """Rays through a rectangle of the frame, ``fold`` × ``fold`` per sensor pixel.

    Attributes:
      side: rows and columns of the frame, the rendered square of sensor pixels.
      rows: rows of the frame covered by the rectangle.
      columns: columns of the frame covered by the rectangle.
      fold: rays per pixel in each direction.
      u: positions of the rays to the right in metres, ascending.
      v: positions of the rays upward in metres, ascending, i.e. in reverse order of the rows.
    """

    side: int
    rows: slice
    columns: slice
    fold: int
    u: Float[np.ndarray, " w"]
    v: Float[np.ndarray, " h"]

    def integrate(
        self, index: Int[np.ndarray, " n"], values: Float[np.ndarray, " n"]
    ) -> Float[np.ndarray, "size size"]:
        """Averages ray values over each pixel of the frame; rays not in ``index`` count as 0."""
        rays = np.zeros(len(self.v) * len(self.u), np.float32)
        rays[index] = values
        rows = rays.reshape(-1, self.fold, len(self.u)).sum(axis=1)
        cells = np.sum([rows[:, i :: self.fold] for i in range(self.fold)], axis=0)
        frame = np.zeros((self.side, self.side), np.float32)
        frame[self.rows, self.columns] = cells[::-1] / np.float32(self.fold**2)
        return frame


@dataclass(frozen=True)
class Pose:
    """A vehicle in front of the sensor, placed in the frame.

    Attributes:
      hits: the surfaces met by the rays of ``lattice``.
      lattice: the rays.
      share: share of each frame pixel that shows the vehicle.
      shape: the vehicle's solids.
      axes: the sensor's axes in the vehicle's coordinates.
      elevation: elevation of the sensor above the ground, in radians.
      azimuth: direction to the sensor in radians, from the vehicle's front towards its left.
      foot: row of the frame where the vehicle stands.
      pixel: metres across a sensor pixel.
    """

    hits: raycast.Hits
    lattice: Lattice
    share: Float[np.ndarray, "h w"]
    shape: raycast.Mesh
    axes: Float[np.ndarray, "3 3"]
    elevation: float
    azimuth: float
    foot: float
    pixel: float

    def box(self) -> Float[np.ndarray, " 4"]:
        """Returns y0, x0, y1, x1 of the rays that meet the vehicle, in frame pixels."""
        across, up = self.hits.index % len(self.lattice.u), self.hits.index // len(self.lattice.u)
        fold, bottom = self.lattice.fold, self.lattice.rows.stop
        left = self.lattice.columns.start
        return np.array(
            [
                bottom - (up.max() + 1) / fold,
                left + across.min() / fold,
                bottom - up.min() / fold,
                left + (across.max() + 1) / fold,
            ]
        )


def render(
    views: Iterable[View], size: int = 64, *, crop: str = "box", surround: int = 0
) -> dict[str, np.ndarray]:
    """Renders views, independently of each other.

    Args:
      views: the views, at least one.
      size: rows and columns of a chip.
      crop: ``"box"``, which shows the target's box and a fifth more at the sensor's full
        resolution; or ``"window"``, 100 × 100 sensor pixels at any range.
      surround: chip pixels to keep around a box's chip on every side.

    Returns:
      ``image`` [b, s, s, 1] uint8 with s = size + 2 · surround; ``mask`` of the same shape, 1 on
      the target's visible pixels; ``box`` [b, 4] float32: y0, x0, y1, x1 of the target in chip
      pixels, hidden parts included; with the crop by the box also ``sensor_pixels`` [b] float32,
      the number of sensor pixels along the box's longer side.

    Raises:
      ValueError: there is no such crop, or a number is out of range.
    """
    chosen = framing(crop, size, surround)
    rendered = [_render_one(view, chosen) for view in views]
    return {name: np.stack([one[name] for one in rendered]) for name in rendered[0]}


def _render_one(view: View, framing: Framing) -> dict[str, np.ndarray]:
    rng = slow = np.random.default_rng(np.random.SeedSequence(view.seed))
    if view.shared is not None:
        slow = np.random.default_rng(np.random.SeedSequence(view.shared))
    pose = place(view, rng, slow, framing)
    box = pose.box()
    ground = terrain.draw(
        rng, pose.lattice.side, pose.pixel, pose.foot, float(box[2] - box[0]), pose.elevation
    )
    see = _see_visible if sensor.BANDS[view.band] == "visible" else _see_thermal
    image = see(view, slow, rng, pose, ground)
    shown = framing.share(pose.share * (1 - ground.before), box)
    # A distant target seen through vegetation still owns the pixel that shows most of it.
    mask = shown >= min(_HIDDEN, float(shown.max()))
    return {
        "image": framing.chip(image, box)[..., None],
        "mask": mask.astype(np.uint8)[..., None],
        **framing.facts(box),
    }


def place(
    view: View, rng: np.random.Generator, slow: np.random.Generator, framing: Framing
) -> Pose:
    """Draws the sensor's elevation, the pose of turret and gun, and the position in the frame.

    Args:
      view: the view.
      rng: the view's generator, which draws the position.
      slow: the generator of conditions shared by a track's views; ``rng`` itself for a single view.
      framing: determines the frame's size and the vehicle's largest offset from its centre.
    """
    pixel = sensor.pixel_size(view.range_m)
    azimuth = float(np.radians(view.aspect_deg))
    elevation = float(np.radians(slow.uniform(2.0, 6.0)))
    shape = turned_at_random(view.seen, slow)
    low, high = raycast.extent(shape, raycast.frame(azimuth, elevation)) / pixel
    side = framing.frame_side(high - low)
    room = np.clip((side - (high - low)) / 2, 0, framing.play)
    centre = side / 2 + room * rng.uniform(-1, 1, 2)
    # The frame's column of u = 0 and row of v = 0.
    column, row = centre[0] - (low[0] + high[0]) / 2, centre[1] + (low[1] + high[1]) / 2
    return stand(shape, azimuth, elevation, (row, column), pixel, side)


def turned_at_random(vehicle: Vehicle, rng: np.random.Generator) -> raycast.Mesh:
    """Draws the pose of a vehicle's turret and gun."""
    return vehicle.posed(
        traverse=float(np.radians(rng.normal(0, 4))), lift=float(np.radians(rng.uniform(0, 3)))
    )


def stand(
    shape: raycast.Mesh,
    azimuth: float,
    elevation: float,
    origin: tuple[float, float],
    pixel: float,
    side: int,
) -> Pose:
    """Puts a vehicle at a place of the frame.

    Args:
      shape: the vehicle's solids.
      azimuth: direction to the sensor in radians, from the vehicle's front towards its left.
      elevation: elevation of the sensor above the ground, in radians.
      origin: the frame's row and column of the vehicle's origin, on the ground.
      pixel: metres across a sensor pixel.
      side: rows and columns of the frame.
    """
    row, column = origin
    axes = raycast.frame(azimuth, elevation)
    low, high = (raycast.extent(shape, axes) / pixel).astype(float)
    # The lattice extends half a vehicle's height below and beside it, for its shadow.
    margin = 0.5 * (high[1] - low[1]) + 2
    lattice = _lattice(
        side,
        (row - high[1] - 1, row - low[1] + margin),
        (column + low[0] - 3 * margin, column + high[0] + 3 * margin),
        (row, column),
        pixel,
    )
    hits = raycast.cast(shape, axes, lattice.u, lattice.v)
    share = lattice.integrate(hits.index, np.ones(len(hits.index), np.float32))
    return Pose(hits, lattice, share, shape, axes, elevation, azimuth, float(row), pixel)


def _lattice(
    side: int,
    rows: tuple[float, float],
    columns: tuple[float, float],
    origin: tuple[float, float],
    pixel: float,
) -> Lattice:
    """Creates rays through the given spans of rows and columns, clipped at the frame's edge."""
    fold = max(2, int(np.ceil(pixel / _FINEST)))
    (top, bottom), (left, right) = (
        np.clip([np.floor(span[0]), np.ceil(span[1])], 0, side).astype(int).tolist()
        for span in (rows, columns)
    )
    across = left + (np.arange((right - left) * fold) + 0.5) / fold
    up = bottom - (np.arange((bottom - top) * fold) + 0.5) / fold
    return Lattice(
        side,
        slice(top, bottom),
        slice(left, right),
        fold,
        ((across - origin[1]) * pixel).astype(np.float32),
        ((origin[0] - up) * pixel).astype(np.float32),
    )


def _see_visible(
    view: View,
    rng: np.random.Generator,
    noise: np.random.Generator,
    pose: Pose,
    ground: terrain.Terrain,
) -> Float[np.ndarray, "h w"]:
    day = conditions.daylight(rng)
    light = day.light(pose.azimuth)
    shade = radiance.Shade(pose.shape, light.axes)
    coat = conditions.coat(rng, day.soil)
    seen = radiance.reflected(pose.hits, light, coat.paint, shade, day.soil, coat.glint)
    layers = conditions.visible_layers(rng, day.soil, light.ground)
    cover = ground.cover(layers.ground, layers.ridge, layers.bush)
    cover *= 1 - shadows(pose, light, shade)
    scene = ground.hide(composed(pose, seen, cover), layers.bush)
    path = sensor.draw_visible(rng, view.range_m, light.ground)
    return path.image(noise, scene, float(cover.mean()))


def _see_thermal(
    view: View,
    rng: np.random.Generator,
    noise: np.random.Generator,
    pose: Pose,
    ground: terrain.Terrain,
) -> Float[np.ndarray, "h w"]:
    day = rng.uniform(0, 1)
    heat = conditions.heat(rng, day, pose.azimuth)
    seen = radiance.temperature(pose.hits, heat, view.seen.engine)
    layers = conditions.thermal_layers(rng, day)
    cover = ground.cover(layers.ground, layers.ridge, layers.bush)
    scene = ground.hide(composed(pose, seen, cover), layers.bush)
    path = sensor.draw_thermal(rng, view.range_m)
    return path.image(noise, scene, float(cover.mean()))


def composed(
    pose: Pose, seen: Float[np.ndarray, " n"], cover: Float[np.ndarray, "h w"]
) -> Float[np.ndarray, "h w"]:
    """Puts the signal that each ray sees of a vehicle before the terrain."""
    return pose.lattice.integrate(pose.hits.index, seen) + (1 - pose.share) * cover


def shadows(pose: Pose, light: radiance.Light, shade: radiance.Shade) -> Float[np.ndarray, "h w"]:
    """Returns the share of each ground pixel's light that the vehicle blocks."""
    lattice = pose.lattice
    # The ray through (u, v) meets the ground, z = 0, at this depth.
    depth = -lattice.v * pose.axes[1, 2] / pose.axes[2, 2]
    index = np.arange(len(lattice.v) * len(lattice.u))
    index = np.delete(index, pose.hits.index)
    rows, columns = np.divmod(index, len(lattice.u))
    points = np.stack([lattice.u[columns], lattice.v[rows], depth[rows]], axis=1) @ pose.axes
    direct = light.direct * float(-light.axes[2, 2]) / light.ground
    # Close to the vehicle, part of the sky is blocked as well.
    near = np.maximum(np.abs(points[:, 0]) - 3.0, np.abs(points[:, 1]) - 1.3)
    closed = 0.6 * (1 - direct) * np.clip(1 - near / 0.6, 0, 1)
    return lattice.integrate(index, direct * (1 - shade.lit(points)) + closed.astype(np.float32))
