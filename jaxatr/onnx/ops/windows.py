"""Window arithmetic shared by convolution and pooling."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxatr.onnx.ops.values import sized

Ints = tuple[int, ...]
UNSET = "NOTSET", ""
"""Values of ``auto_pad`` with which ``pads`` counts."""


class Windows(NamedTuple):
    """Windows over the spatial axes of a tensor.

    Attributes:
      kernel: number of taps of a window along each axis.
      strides: stride along each axis.
      dilations: dilation along each axis.
      pads: padding at the start and end of each axis.
      extra: additional padding at the end of each axis, which only ``ceil_mode`` needs.
      counts: number of windows along each axis.
    """

    kernel: Ints
    strides: Ints
    dilations: Ints
    pads: tuple[tuple[int, int], ...]
    extra: Ints
    counts: Ints

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Padding at the start and end of each axis, the additional one included."""
        pairs = zip(self.pads, self.extra, strict=True)
        return tuple((before, after + more) for (before, after), more in pairs)

    def taps(self, axis: int) -> np.ndarray:
        """Returns the index along an axis, ``[windows, taps]``, that each tap of a window has."""
        start = np.arange(self.counts[axis]) * self.strides[axis] - self.pads[axis][0]
        return start[:, None] + np.arange(self.kernel[axis]) * self.dilations[axis]


def windows(
    spatial: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str,
    ceil_mode: int = 0,
) -> Windows:
    """Returns the windows described by ONNX's attributes.

    Args:
      spatial: spatial shape of the tensor.
      kernel: number of taps of a window along each axis.
      strides: stride along each axis; 1 by default.
      dilations: dilation along each axis; 1 by default.
      pads: padding, ``(start_1, …, start_n, end_1, …, end_n)``; 0 by default.
      auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER.
      ceil_mode: whether the last window may extend beyond the end.

    Raises:
      ValueError: an attribute has the wrong length or an impossible value, a window is longer
        than its axis, or the padded tensor would be too large.
    """
    rank = len(spatial)
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    pads = pads or (0,) * (2 * rank)
    for name, numbers, count, least in (
        ("kernel_shape", kernel, rank, 1),
        ("strides", strides, rank, 1),
        ("dilations", dilations, rank, 1),
        ("pads", pads, 2 * rank, None),
    ):
        if len(numbers) != count or (least is not None and min(numbers, default=1) < least):
            kind = "numbers" if least is None else "positive numbers"
            raise ValueError(f"{name}: got {tuple(numbers)}, wanted {count} {kind}")
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pairs, extra, counts = [], [], []
    for i, length in enumerate(spatial):
        before, after = padding(auto_pad, length, reach[i], strides[i], pads[i], pads[rank + i])
        room = length + before + after - reach[i]
        count = (-(-room // strides[i]) if ceil_mode else room // strides[i]) + 1
        if ceil_mode and (count - 1) * strides[i] >= length + before:
            count -= 1  # the last window would begin beyond the tensor
        if count < 0:
            raise ValueError(
                f"kernel_shape: a window spans {reach[i]} elements, more than axis {i} "
                f"of length {length} with its padding"
            )
        pairs.append((before, after))
        counts.append(count)
        extra.append(max(0, (count - 1) * strides[i] - room))
    padded = zip(spatial, pairs, extra, strict=True)
    sized(max(0, length + sum(pair) + more) for length, pair, more in padded)
    return Windows(
        tuple(kernel), tuple(strides), tuple(dilations), tuple(pairs), tuple(extra), tuple(counts)
    )


def along(numbers: Ints) -> Any:
    """Converts one number per axis for :mod:`jaxatr.kernels`, which takes a scalar for one axis."""
    return numbers[0] if len(numbers) == 1 else tuple(numbers)


def around(pads: Sequence[tuple[int, int]]) -> Any:
    """Converts padding for :mod:`jaxatr.kernels`, which takes a single pair for one axis."""
    return tuple(pads[0] if len(pads) == 1 else pads)


def check_auto_pad(auto_pad: str) -> None:
    """Raises ValueError for a value that ONNX does not know."""
    if auto_pad not in (*UNSET, "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise ValueError(
            f"auto_pad: got {auto_pad!r}, wanted NOTSET, VALID, SAME_UPPER or SAME_LOWER"
        )


def padding(
    auto_pad: str, length: int, reach: int, stride: int, before: int, after: int
) -> tuple[int, int]:
    """Returns the padding at the start and end of one axis.

    Raises:
      ValueError: ``auto_pad`` has an invalid value.
    """
    check_auto_pad(auto_pad)
    if auto_pad in UNSET:
        return before, after
    if auto_pad == "VALID":
        return 0, 0
    needed = max(0, (-(-length // stride) - 1) * stride + reach - length)
    smaller, larger = needed // 2, needed - needed // 2
    return (smaller, larger) if auto_pad == "SAME_UPPER" else (larger, smaller)
