"""Sums of many arrays over batch and pixels, in blocks that XLA:CPU vectorizes.

XLA:CPU computes the results of a reduction one by one, so a sum over pixels for each channel
strides through memory, one number at a time. For blocks of up to eight pixels the compiler unrolls
the loop and vectorizes over neighbouring channels. Reducing several arrays together takes one loop,
which reads shared inputs once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxatr.kernels.ops.windows import Pair
from jaxatr.typing import Array

BLOCK = 8  # pixels in a block; the compiler does not unroll longer loops
_TOGETHER = 9  # arrays in one loop; the compiler does not unroll loops over more


def sums(terms: Sequence[Callable[[int, int], Array]], rows: int, block: int = BLOCK) -> Array:
    """Returns ``[terms, c]``, the sums of ``[b, rows, w, c]`` arrays over batch and pixels.

    Args:
      terms: functions ``(start, stop) -> [b, stop - start, w, c]``, each giving rows of an array.
      rows: number of rows of each array.
      block: pixels in a block.
    """
    totals = [
        sum(_together([term(*part) for term in some], block) for part in _parts(rows, block))
        for some in (terms[i : i + _TOGETHER] for i in range(0, len(terms), _TOGETHER))
    ]
    return jnp.concatenate(totals)


def _parts(rows: int, block: int) -> list[Pair]:
    """Returns ``(start, stop)`` of parts that divide into blocks well: 23 rows become 16 and 7."""
    rest = 0 if _divisor(rows, block) * 2 > min(rows, block) else rows % block
    return [part for part in ((0, rows - rest), (rows - rest, rows)) if part[0] < part[1]]


def _divisor(number: object, most: int) -> int:
    """Returns the largest divisor of ``number`` up to ``most``, or 1 for a symbolic dimension."""
    if not isinstance(number, int):
        return 1
    return max(d for d in range(1, max(1, most) + 1) if number % d == 0)


def _together(arrays: Sequence[Array], block: int) -> Array:
    """Returns ``[arrays, c]``, the sums of ``[b, h, w, c]`` arrays over all but channels."""
    batch, height, width, channels = arrays[0].shape
    rows = _divisor(height, block)
    images = _divisor(batch, block // rows)
    columns = _divisor(width, block // (rows * images))
    shape: list[Any] = []
    inside = []
    for whole, part in ((batch, images), (height, rows), (width, columns)):
        shape.append(whole // part)
        if part > 1:
            inside.append(len(shape))
            shape.append(part)
    partial = arrays
    if inside:
        zeros = (jnp.zeros((), arrays[0].dtype),) * len(arrays)
        whole = tuple(array.reshape(*shape, channels) for array in arrays)
        partial = jax.lax.reduce(whole, zeros, _added, inside)
    flat = [part.reshape(-1, channels) for part in partial]
    return jnp.concatenate([jnp.ones((1, part.shape[0]), part.dtype) @ part for part in flat])


def _added(left: Sequence[Array], right: Sequence[Array]) -> tuple[Array, ...]:
    return tuple(a + b for a, b in zip(left, right, strict=True))
