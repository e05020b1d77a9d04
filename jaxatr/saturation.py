"""Weights in 8 bits whose products no processor saturates.

A processor with AVX2 or AVX-512 but without VNNI multiplies uint8 by int8 with ``vpmaddubsw``,
which adds the products of two neighbours in 16 bits and saturates. onnxruntime and OpenVINO use it
by default, so that a sum can be wrong by half. It is exact if the weights of no two neighbours sum
up to more than 128, since ``255 * 128 < 2 ** 15``.
"""

import numpy as np

from jaxatr.typing import ArrayLike, Float

LARGEST = 127
"""Largest integer of a weight."""


def steps(rows: Float[ArrayLike, "*n d"], *, paired: bool = True) -> Float[np.ndarray, "*n"]:
    """Returns the steps of rows of weights, by which they are divided before they are rounded.

    The largest integer is at most :data:`LARGEST`. In each pair of neighbours (0 and 1, 2 and 3,
    …), the positive integers sum up to at most 128, and so do the negative ones.

    Args:
      rows: weights, in the order in which an engine sums their products. A row of zeros gets the
        step 1 / 127.
      paired: whether the engine adds products in pairs. If not, single integers are limited only.
    """
    values = np.asarray(rows, np.float32)
    if paired:
        if values.shape[-1] % 2:
            values = np.concatenate([values, np.zeros_like(values[..., :1])], axis=-1)
        pairs = values.reshape(*values.shape[:-1], -1, 2)
        values = np.maximum(*(np.maximum(side, 0).sum(axis=-1) for side in (pairs, -pairs)))
    widest = np.abs(values).max(axis=-1)
    return np.where(widest > 0, widest, 1) / np.float32(LARGEST)
