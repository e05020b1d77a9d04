"""Random light, weather, paint and temperatures, with the same distribution for every vehicle."""

from typing import NamedTuple

import numpy as np

from jaxatr.data.sources.simulated import radiance, raycast
from jaxatr.data.sources.simulated.terrain import Layer


class Daylight(NamedTuple):
    """The light on a scene.

    Attributes:
      clear: 0 for an overcast sky, 1 for a clear one.
      bearing: direction to the sun, in radians from the direction to the sensor.
      height: elevation of the sun, in radians.
      soil: reflectance of the ground.
    """

    clear: float
    bearing: float
    height: float
    soil: float

    def light(self, azimuth: float) -> radiance.Light:
        """Returns the light in the coordinates of a vehicle.

        Args:
          azimuth: direction to the sensor in radians, from the vehicle's front towards its left.
        """
        axes = raycast.frame(azimuth + self.bearing, self.height)
        return radiance.Light(direct=self.clear, sky=1 - 0.75 * self.clear, axes=axes)


class Coat(NamedTuple):
    """A vehicle's paint, and the share of the sky that its windows mirror."""

    paint: radiance.Paint
    glint: float


class Layers(NamedTuple):
    """The signals of the kinds of cover."""

    ground: Layer
    ridge: Layer
    bush: Layer


def daylight(rng: np.random.Generator) -> Daylight:
    """Draws the light on a scene."""
    clear, bearing = rng.uniform(0.45, 1.0), rng.uniform(-np.pi, np.pi)
    height = float(np.radians(rng.uniform(30, 65)))
    return Daylight(clear, bearing, height, rng.uniform(0.16, 0.28))


def coat(rng: np.random.Generator, soil: float) -> Coat:
    """Draws a vehicle's paint, darker or brighter than the ground's reflectance ``soil``."""
    waves = np.concatenate(
        [rng.normal(0, 2.2, (5, 3)), rng.uniform(0, 2 * np.pi, (5, 1))], axis=1
    ).astype(np.float32)
    albedo = soil * (rng.uniform(0.3, 0.65) if rng.random() < 0.7 else rng.uniform(1.7, 2.5))
    paint = radiance.Paint(albedo, rng.uniform(0, 0.15), waves)
    return Coat(paint, rng.uniform(0.05, 0.5))


def visible_layers(rng: np.random.Generator, soil: float, light: float) -> Layers:
    """Draws the terrain's radiance, for its reflectance and the irradiance of level ground."""
    bush = Layer(rng.uniform(0.04, 0.16) * light, 0.03 * light)
    ground = Layer(soil * light, soil * rng.uniform(0.03, 0.1) * light)
    return Layers(ground, Layer(rng.uniform(0.08, 0.25) * light, 0.03 * light), bush)


def heat(rng: np.random.Generator, day: float, azimuth: float) -> radiance.Heat:
    """Draws a vehicle's temperatures.

    Args:
      rng: the random generator.
      day: 0 at night, 1 at noon.
      azimuth: direction to the sensor in radians, from the vehicle's front towards its left.
    """
    return radiance.Heat(
        hull=rng.normal(0.5, 2.5),
        engine=rng.uniform(7, 16),
        running=rng.uniform(2, 8),
        gun=rng.uniform(0, 10),
        sky=rng.uniform(3, 7),
        sun=day * rng.uniform(0, 5),
        sun_axes=raycast.frame(
            azimuth + rng.uniform(-np.pi, np.pi), float(np.radians(rng.uniform(15, 65)))
        ),
    )


def thermal_layers(rng: np.random.Generator, day: float) -> Layers:
    """Draws the terrain's temperatures; ``day`` is 0 at night and 1 at noon."""
    soil = rng.normal(0, 1) + 3 * day - 1.5
    bush = Layer(soil + rng.uniform(-3, 1.5), 0.6)
    ground = Layer(soil, rng.uniform(0.25, 1.0))
    return Layers(ground, Layer(soil + rng.uniform(-3, 1), 0.5), bush)
