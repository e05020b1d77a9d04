"""Arrays of any numeric type as images."""

import math

import numpy as np

from jaxatr.data.decoder.header import MOST_BANDS, ImageError


def measured(values: np.ndarray, *, phase: bool = False) -> np.ndarray:
    """Converts measurements ``[h, w]`` or ``[h, w, c]`` to an image ``[h, w, c]``.

    uint8 and uint16 are kept, booleans become 0 and 255, complex values their magnitude; everything
    else becomes float32. Nothing is rescaled.

    Args:
      values: an array of any numeric type.
      phase: make two bands of each complex one, its magnitude and its phase in radians.

    Raises:
      ImageError: the shape does not fit, or a value is not a number or not finite as float32.
    """
    bands_of(values.shape)
    if values.ndim == 2:
        values = values[:, :, None]
    if values.dtype.kind == "b":
        return values.astype(np.uint8) * np.uint8(255)
    if values.dtype.kind not in "uifc":
        raise ImageError(f"got an array of {values.dtype}, wanted numbers")
    if values.dtype.kind == "c" and phase:
        bands_of((*values.shape[:2], 2 * values.shape[2]))
        parts = np.stack([np.abs(values), np.angle(values)], axis=3)
        values = parts.reshape(*values.shape[:2], -1)
    elif values.dtype.kind == "c":
        values = np.abs(values)
    if values.dtype.kind == "u" and values.dtype.itemsize < 4:
        return np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    with np.errstate(over="ignore"):  # overflow becomes infinite and is refused
        floats = np.ascontiguousarray(values, np.float32)
    if not np.isfinite(floats).all():
        raise ImageError("holds pixels that are not finite numbers")
    return floats


def filled(values: np.ndarray, missing: float | None) -> np.ndarray:
    """Replaces missing values of an image ``[h, w, c]`` by 0, in place.

    They are those of a number in all bands, and infinite ones and NaN.
    """
    if values.dtype.kind in "fc":
        values[~np.isfinite(values)] = 0
    if missing is not None and not math.isnan(missing):
        values[(values == missing).all(axis=-1)] = 0
    return values


def bands_of(shape: tuple[int, ...]) -> int:
    """Returns the number of bands of an array ``[h, w]`` or ``[h, w, c]``.

    Raises:
      ImageError: the array has another shape.
    """
    bands = shape[2] if len(shape) == 3 else 1
    if len(shape) not in (2, 3) or not all(shape) or bands > MOST_BANDS:
        raise ImageError(
            f"got an array of shape {list(shape)}, wanted [h, w] or [h, w, bands] with 1 to "
            f"{MOST_BANDS} bands"
        )
    return bands
