"""Windows that move over an image: the ways to write their strides and their padding."""

from numbers import Integral
from typing import Any, TypeAlias

Pair: TypeAlias = tuple[int, int]
Shape: TypeAlias = tuple[Any, ...]  # of numbers, or of symbolic dimensions of jax.export
Padding: TypeAlias = int | tuple[int, int] | tuple[Pair, Pair] | str


def pair(name: str, value: Any, minimum: int) -> Pair:
    """Returns ``(rows, columns)`` of a number or of a pair.

    Raises:
      ValueError: it is neither, or less than ``minimum``.
    """
    both = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    numbers = [isinstance(v, Integral) and not isinstance(v, bool) for v in both]
    if len(both) != 2 or not all(numbers) or min(both) < minimum:
        raise ValueError(f"{name}: got {value!r}, wanted an int or a pair of ints >= {minimum}")
    return int(both[0]), int(both[1])


def edges(
    value: Any, sizes: Shape, window: Shape, stride: Pair, dilation: Pair = (1, 1)
) -> tuple[Pair, Pair]:
    """Returns ``((top, bottom), (left, right))`` for every way to write the padding.

    Args:
      value: one number, ``(rows, columns)``, ``((top, bottom), (left, right))``, ``"VALID"``
        (none) or ``"SAME"`` (as many as give ``ceil(size / stride)`` results, an odd one at the
        bottom and right).
      sizes: rows and columns of the image.
      window: rows and columns of taps.
      stride: between neighbouring results.
      dilation: between neighbouring taps.

    Raises:
      ValueError: it is none of these.
    """
    if value == "VALID":
        return (0, 0), (0, 0)
    if value == "SAME":
        return tuple(map(_same, sizes, window, stride, dilation))  # type: ignore[return-value]
    wanted = "an int, a pair, ((top, bottom), (left, right)), 'SAME' or 'VALID'"
    if isinstance(value, str) or value is None:
        raise ValueError(f"padding: got {value!r}, wanted {wanted}")
    rows, columns = (
        value if isinstance(value, (tuple, list)) and len(value) == 2 else (value, value)
    )
    try:
        return pair("padding", rows, 0), pair("padding", columns, 0)
    except ValueError:
        raise ValueError(f"padding: got {value!r}, wanted {wanted}, all >= 0") from None


def _same(size: int, taps: int, stride: int, dilation: int) -> Pair:
    total = max(0, (-(-size // stride) - 1) * stride + (taps - 1) * dilation + 1 - size)
    return total // 2, total - total // 2
