"""The sensor model, from a scene to a chip: haze, blur, gain and noise, by band and range."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from jaxatr.typing import Float, UInt8

BANDS: tuple[str, ...] = ("visible", "thermal")
WINDOW = 100  # sensor pixels across a chip; a T72 with its gun just fits at 1000 m
FIELD_OF_VIEW_DEG = 3.4
COLUMNS = 640


def pixel_size(range_m: int | float) -> float:
    """Returns the width in metres that a sensor pixel covers across the line of sight."""
    return float(2 * range_m * np.tan(np.radians(FIELD_OF_VIEW_DEG / 2)) / COLUMNS)


@dataclass(frozen=True)
class Path:
    """The properties of the air and the sensor between scene and chip.

    Attributes:
      transmission: share of the scene's contrast that the air transmits.
      airlight: radiance of the haze that replaces the rest, in the scene's unit.
      blur: standard deviation of the blur by optics and turbulence, in sensor pixels.
      gain: gray levels per unit of the scene that reaches the sensor.
      level: gray level of the terrain's mean.
      noise: standard deviation of the pixel noise, in gray levels.
      stripes: standard deviation of the column offsets, in gray levels.
    """

    transmission: float
    airlight: float
    blur: float
    gain: float
    level: float
    noise: float
    stripes: float

    def image(
        self,
        rng: np.random.Generator,
        scene: Float[np.ndarray, "h w"],
        reference: float,
    ) -> Float[np.ndarray, "h w"]:
        """Returns the sensor's image in gray levels.

        Args:
          rng: generator of the noise.
          scene: radiance or temperature of each pixel.
          reference: the terrain's mean, to which the sensor's level is set.
        """
        import scipy.ndimage  # slow to import, and not needed for a prepared set

        seen = scipy.ndimage.gaussian_filter(scene, self.blur, mode="nearest", truncate=3.0)
        haze = (1 - self.transmission) * self.airlight
        black = self.transmission * reference + haze
        levels = self.level + self.gain * (self.transmission * seen + haze - black)
        levels += np.float32(self.noise) * rng.standard_normal(scene.shape, dtype=np.float32)
        return levels + np.float32(self.stripes) * rng.standard_normal(
            scene.shape[1], dtype=np.float32
        )


def draw_visible(rng: np.random.Generator, range_m: int, light: float) -> Path:
    """Draws the visible path over ``range_m`` metres; ``light`` is the ground's irradiance."""
    extinction = 3.912 / rng.uniform(12e3, 30e3)  # Koschmieder: 2 % contrast at the visibility
    transmission = float(np.exp(-extinction * range_m))
    # The automatic gain restores part of the contrast lost to haze, amplifying the noise.
    stretch = transmission ** -rng.uniform(0.4, 0.8)
    return Path(
        transmission=transmission,
        airlight=rng.uniform(0.5, 0.9) * light,
        blur=_blur(rng, range_m, 0.55),
        gain=rng.uniform(380, 500) / light * stretch,
        level=rng.uniform(100, 140),
        noise=rng.uniform(0.8, 1.6) * stretch,
        stripes=rng.uniform(0.0, 0.4),
    )


def draw_thermal(rng: np.random.Generator, range_m: int) -> Path:
    """Draws the mid-wave infrared path over ``range_m`` metres."""
    transmission = float(np.exp(-rng.uniform(0.06, 0.18) * range_m / 1000))
    gain = rng.uniform(7.0, 10.5) * transmission ** -rng.uniform(0.4, 0.8)
    return Path(
        transmission=transmission,
        airlight=0.0,
        blur=_blur(rng, range_m, 0.75),
        gain=gain,
        level=rng.uniform(70, 100),
        noise=gain * rng.uniform(0.06, 0.16),
        stripes=gain * rng.uniform(0.02, 0.08),
    )


def chip(image: Float[np.ndarray, "h w"], size: int) -> Float[np.ndarray, "size size"]:
    """Averages ``image`` over areas to ``size`` × ``size`` pixels."""
    rows = _averaging(image.shape[0], size)
    columns = _averaging(image.shape[1], size)
    return rows @ image @ columns.T


def quantise(image: Float[np.ndarray, "h w"]) -> UInt8[np.ndarray, "h w"]:
    """Rounds gray levels to 8 bits, clipping them."""
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


def _blur(rng: np.random.Generator, range_m: int, optics: float) -> float:
    """Draws a blur; turbulence along the path adds an angle proportional to range^(3/5)."""
    turbulence = rng.uniform(0.05, 0.35) * (range_m / 1000) ** 0.6
    return float(np.hypot(optics * rng.uniform(0.9, 1.2), turbulence))


@cache
def _averaging(source: int, target: int) -> Float[np.ndarray, "t s"]:
    """Returns the matrix that averages ``source`` samples over ``target`` equal intervals."""
    edges = np.arange(target + 1) * source / target
    cells = np.arange(source)
    low = np.maximum(edges[:-1, None], cells)
    high = np.minimum(edges[1:, None], cells + 1)
    return (np.maximum(high - low, 0) * target / source).astype(np.float32)
