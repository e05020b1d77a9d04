"""Arrays of any numeric type as images."""

import numpy as np

from jaxatr.data.decoder.header import ImageError


def measured(values: np.ndarray) -> np.ndarray:
    """Converts measurements ``[h, w]`` or ``[h, w, c]`` to an image ``[h, w, c]``, ``c`` 1 or 3.

    uint8 and uint16 are kept, booleans become 0 and 255, complex values their magnitude; everything
    else becomes float32. Nothing is rescaled.

    Args:
      values: an array of any numeric type.

    Raises:
      ImageError: the shape does not fit, or a value is not a number or not finite as float32.
    """
    if values.ndim == 2:
        values = values[:, :, None]
    if values.ndim != 3 or values.shape[2] not in (1, 3) or not values.size:
        raise ImageError(f"got an array of shape {list(values.shape)}, wanted [h, w] or [h, w, 3]")
    if values.dtype.kind == "b":
        return values.astype(np.uint8) * np.uint8(255)
    if values.dtype.kind not in "uifc":
        raise ImageError(f"got an array of {values.dtype}, wanted numbers")
    if values.dtype.kind == "c":
        values = np.abs(values)
    if values.dtype.kind == "u" and values.dtype.itemsize < 4:
        return np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    with np.errstate(over="ignore"):  # overflow becomes infinite and is refused
        floats = np.ascontiguousarray(values, np.float32)
    if not np.isfinite(floats).all():
        raise ImageError("holds pixels that are not finite numbers")
    return floats
