"""Gray values of colours."""

import numpy as np

LUMA = np.array([299, 587, 114])
"""Weights of red, green and blue in a gray value, in thousandths (ITU-R BT.601)."""


def gray(image: np.ndarray) -> np.ndarray:
    """Converts RGB ``[h, w, 3]`` to its luma ``[h, w, 1]``, in the same type.

    Integers are summed exactly, so that a tie rounds the same way on every machine: to even.
    """
    values = (image @ LUMA / 1000)[:, :, None]
    return (np.rint(values) if image.dtype.kind in "iu" else values).astype(image.dtype)
