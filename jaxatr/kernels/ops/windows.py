"""Parsing of the strides and the padding of windows that move over an image."""

from numbers import Integral
from typing import Any, TypeAlias

Pair: TypeAlias = tuple[int, int]
Shape: TypeAlias = tuple[Any, ...]  # of numbers, or of symbolic dimensions of jax.export
Padding: TypeAlias = int | tuple[int, int] | tuple[Pair, Pair] | str


def pair(name: str, value: Any, minimum: int) -> Pair:
    """Returns ``(rows, columns)``, given a pair or one number for both.

    Raises:
      ValueError: ``value`` is neither, or a number is below ``minimum``.
    """
    both = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    numbers = [isinstance(v, Integral) and not isinstance(v, bool) for v in both]
    if len(both) != 2 or not all(numbers) or min(both) < minimum:
        raise ValueError(f"{name}: got {value!r}, wanted an int or a pair of ints >= {minimum}")
    return int(both[0]), int(both[1])


def edges(
    value: Any, sizes: Shape, window: Shape, stride: Pair, dilation: Pair = (1, 1)
) -> tuple[Pair, Pair]:
    """Returns the padding as ``((top, bottom), (left, right))``.

    Args:
      value: one number, ``(rows, columns)``, ``((top, bottom), (left, right))``, ``"VALID"``
        (none) or ``"SAME"`` (enough for ``ceil(size / stride)`` results, an odd pixel at the
        bottom and right).
      sizes: rows and columns of the image.
      window: rows and columns of the window.
      stride: rows and columns between neighbouring results.
      dilation: rows and columns between neighbouring taps.

    Raises:
      ValueError: ``value`` is none of the above.
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
