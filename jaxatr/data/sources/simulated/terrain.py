"""The terrain behind and in front of a vehicle: textured soil, distant ridges and bushes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jaxatr.typing import Float

_GRID = 108  # the textures' period in pixels; more for larger frames
_COUNTED = 100  # side of the frame for which the numbers of bushes are given


@dataclass(frozen=True)
class Layer:
    """The signal of a kind of cover: its mean and its texture's spread, in the band's unit."""

    level: float
    spread: float


@dataclass(frozen=True)
class Terrain:
    """A frame of terrain, in sensor pixels.

    Attributes:
      fine: texture of the open ground, with zero mean and unit spread.
      rough: texture of bushes and ridges, with zero mean and unit spread.
      ridge: coverage by a distant ridge, 0 to 1.
      behind: coverage by bushes beyond the vehicle, 0 to 1.
      before: coverage by bushes nearer than the vehicle, which may hide it, 0 to 1.
    """

    fine: Float[np.ndarray, "h w"]
    rough: Float[np.ndarray, "h w"]
    ridge: Float[np.ndarray, "h w"]
    behind: Float[np.ndarray, "h w"]
    before: Float[np.ndarray, "h w"]

    def cover(self, ground: Layer, ridge: Layer, bush: Layer) -> Float[np.ndarray, "h w"]:
        """Returns the signal of the terrain beyond the vehicle."""
        image = _textured(ground, self.fine)
        image += self.ridge * (_textured(ridge, self.rough) - image)
        image += self.behind * (_textured(bush, self.rough) - image)
        return image

    def hide(self, image: Float[np.ndarray, "h w"], bush: Layer) -> Float[np.ndarray, "h w"]:
        """Draws the bushes in front of the vehicle over an image."""
        return image + self.before * (_textured(bush, self.rough) - image)


def draw(
    rng: np.random.Generator,
    size: int,
    pixel: float,
    foot: float,
    height: float,
    elevation: float,
) -> Terrain:
    """Draws a terrain.

    Args:
      rng: the random generator.
      size: rows and columns of the frame.
      pixel: metres across a pixel.
      foot: row where the vehicle stands.
      height: the vehicle's height in rows.
      elevation: elevation of the sensor above the ground in radians; flattens the ground's texture.
    """
    fine, rough = textures(rng, size, pixel, elevation)
    fields = np.full((2, size, size), -1.0, np.float32)  # behind the vehicle, and before it
    for bush in bushes(rng, size, pixel):
        before = bush.base >= foot
        grow(fields[int(before)], bush.no_higher(foot, height) if before else bush)
    behind, before = cover_of(fields, rough)
    return Terrain(fine, rough, ridge(rng, size, foot - height), behind, before)


def textures(
    rng: np.random.Generator, size: int, pixel: float, elevation: float
) -> tuple[Float[np.ndarray, "h w"], Float[np.ndarray, "h w"]]:
    """Draws the textures of the open ground, and of bushes and ridges.

    Args:
      rng: the random generator.
      size: rows and columns of the frame.
      pixel: metres across a pixel.
      elevation: elevation of the sensor above the ground in radians.
    """
    flatten = float(np.clip(np.sin(elevation) * rng.uniform(2, 5), 0.2, 0.7))
    fine = _fractal(rng, size, rng.uniform(0.6, 1.2), flatten, pixel / rng.uniform(3, 15))
    return fine, _fractal(rng, size, rng.uniform(0.4, 1.0), 0.9, pixel / 2.0)


class Bush(NamedTuple):
    """A bush, in sensor pixels: row of its base, its column, half its width, half its height."""

    base: float
    column: float
    wide: float
    tall: float

    def no_higher(self, foot: float, height: float) -> "Bush":
        """Returns the bush, cut where it would hide more than the knees of a vehicle behind it.

        Args:
          foot: row where the vehicle stands.
          height: the vehicle's height in rows.
        """
        return self._replace(tall=min(self.tall, (self.base - foot + 0.2 * height) / 2.42))


def bushes(rng: np.random.Generator, size: int, pixel: float) -> Iterator[Bush]:
    """Draws the bushes of a frame of ``size`` rows and columns, of ``pixel`` metres each."""
    scale = 93 * pixel  # about the range in units of 10 m
    density = min(scale / 9.3, 4.0) * (size / _COUNTED) ** 2
    for _ in range(rng.poisson(rng.choice([0.2, 1.0, 3.5]) * density)):
        base, column = rng.uniform(0, size * 1.1), rng.uniform(0, size)
        wide = rng.uniform(0.25, 1.6) / pixel
        yield Bush(base, column, wide, wide * rng.uniform(0.5, 1.3))


def grow(field: Float[np.ndarray, "h w"], bush: Bush) -> None:
    """Adds a bush to a field of heights, as a paraboloid."""
    size = len(field)
    base, column, tall, wide = bush.base, bush.column, max(bush.tall, 0.4), max(bush.wide, 0.4)
    rows = slice(max(int(base - 2.4 * tall), 0), max(min(int(base) + 2, size), 0))
    columns = slice(max(int(column - 1.2 * wide), 0), min(int(column + 1.2 * wide) + 2, size))
    down = (np.arange(size, dtype=np.float32)[rows] - (base - tall)) / tall
    across = (np.arange(size, dtype=np.float32)[columns] - column) / wide
    patch = field[rows, columns]
    np.maximum(patch, 1 - down[:, None] ** 2 - across**2, out=patch)


def cover_of(
    fields: Float[np.ndarray, "n h w"], rough: Float[np.ndarray, "h w"]
) -> list[Float[np.ndarray, "h w"]]:
    """Returns the coverage by the bushes of each field of heights, 0 to 1, with ragged edges."""
    return [np.clip(3 * (field + 0.45 * rough), 0, 1) * (field > -1) for field in fields]


def _textured(layer: Layer, texture: np.ndarray) -> np.ndarray:
    return layer.level + layer.spread * texture


def _fractal(
    rng: np.random.Generator, size: int, slope: float, flatten: float, cutoff: float
) -> Float[np.ndarray, "h w"]:
    """Draws noise with an amplitude spectrum (f² + cutoff²)^(-slope / 2), squeezed vertically."""
    import scipy.fft  # slow to import, and not needed for a prepared set

    grid = _GRID if size <= _GRID else scipy.fft.next_fast_len(size + _GRID - _COUNTED, real=True)
    across = scipy.fft.rfftfreq(grid).astype(np.float32)
    down = scipy.fft.fftfreq(grid).astype(np.float32) * np.float32(flatten)
    power = across**2 + down[:, None] ** 2 + np.float32(cutoff) ** 2
    spectrum = rng.standard_normal((*power.shape, 2), dtype=np.float32)
    wave = spectrum.view(np.complex64)[..., 0] * power ** np.float32(-slope / 2)
    wave[0, 0] = 0
    noise = np.asarray(scipy.fft.irfft2(wave, s=(grid, grid)))
    return (noise / noise.std())[:size, :size]


def ridge(rng: np.random.Generator, size: int, top: float) -> Float[np.ndarray, "h w"]:
    """Draws a distant ragged skyline that covers the upper part of the frame."""
    row = rng.uniform(-1.2, 0.8) * top
    steps = np.cumsum(rng.standard_normal(size, dtype=np.float32)) * np.float32(0.5)
    line = row + steps - steps.mean() + rng.standard_normal(size, dtype=np.float32)
    down = np.arange(size, dtype=np.float32)[:, None]
    return np.clip(line - down + 0.5, 0, 1)
