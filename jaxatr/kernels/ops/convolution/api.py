"""The public function: it checks and normalises its arguments, then binds the primitive."""

from numbers import Integral
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from jaxatr.kernels.device import of_platform
from jaxatr.kernels.ops.convolution.primitive import bind
from jaxatr.kernels.ops.convolution.problem import Pair, Problem
from jaxatr.kernels.ops.convolution.solvers import SOLVERS
from jaxatr.typing import Array, Shaped

Padding: TypeAlias = int | tuple[int, int] | tuple[Pair, Pair] | str


def convolution(
    x: Shaped[Array, "b h w c"],
    w: Shaped[Array, "kh kw d f"],
    *,
    stride: int | Pair = 1,
    padding: Padding = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
    algorithm: str = "auto",
) -> Shaped[Array, "b h2 w2 f"]:
    """Returns the two-dimensional convolution (cross-correlation) of ``x`` with ``w``.

    All of jax's transformations work through it, to any order. With ``algorithm="auto"`` the
    forward product and each gradient are computed by the algorithm that was found the fastest on
    the device (:func:`jaxatr.kernels.find`), and where nothing was measured by the one that a rule
    expects to be; on GPU and TPU that is XLA's own. :func:`jaxatr.kernels.choices` pins them.

    Args:
      x: images ``[b, h, w, c]``.
      w: kernel ``[kh, kw, c / groups, f]``, of the same type as ``x``.
      stride: pixels between neighbouring results, one number or ``(rows, columns)``.
      padding: zeros around the image: one number, ``(rows, columns)``,
        ``((top, bottom), (left, right))``, ``"VALID"`` (none) or ``"SAME"`` (as many as give
        ``ceil(size / stride)`` results, an odd one at the bottom and right).
      dilation: pixels between neighbouring taps of the kernel, one number or ``(rows, columns)``.
      groups: divides channels and features into as many independent convolutions.
      algorithm: ``"auto"``, or the name of a solver, in its default configuration, for every
        direction on every platform. A direction that it cannot compute is XLA's.

    Returns:
      ``[b, h2, w2, f]`` of the type of ``x`` (of ``int8``: ``int32``) with
      ``h2 = (h + top + bottom - (kh - 1) * dilation - 1) // stride + 1``.

    Raises:
      ValueError: an argument is not one of the above, shapes do not fit together, or the result
        would have no pixel.
    """
    _check_arrays(x, w)
    stride = _pair("stride", stride, minimum=1)
    dilation = _pair("dilation", dilation, minimum=1)
    problem = Problem(
        direction="forward",
        x_shape=x.shape,
        w_shape=w.shape,
        stride=stride,
        padding=_padding(padding, x.shape[1:3], w.shape[:2], stride, dilation),
        dilation=dilation,
        groups=groups,
        dtype=x.dtype.name,
    )
    _check(problem, algorithm)
    return bind(x, w, problem, algorithm)


def _check_arrays(x: Any, w: Any) -> None:
    for name, array, axes in (("x", x, "[b, h, w, c]"), ("w", w, "[kh, kw, c / groups, f]")):
        if not hasattr(array, "dtype"):
            raise ValueError(f"{name}: got a {type(array).__name__}, wanted an array {axes}")
        if jnp.ndim(array) != 4:
            raise ValueError(f"{name}: got shape {jnp.shape(array)}, wanted {axes}")
    if x.dtype != w.dtype:
        raise ValueError(f"w: got {w.dtype.name}, wanted the type of x, {x.dtype.name}")


def _check(problem: Problem, algorithm: str) -> None:
    channels, depth, features = problem.x_shape[3], problem.w_shape[2], problem.w_shape[3]
    groups = problem.groups
    if groups < 1 or channels % groups or features % groups:
        raise ValueError(
            f"groups: got {groups}, wanted a divisor of x's {channels} channels "
            f"and w's {features} features"
        )
    if depth * groups != channels:
        raise ValueError(
            f"w: got {depth} input channels, wanted {channels // groups} "
            f"(x's {channels} channels in {groups} groups)"
        )
    if min(problem.y_shape[1:3]) < 1:
        raise ValueError(
            f"x: {problem.x_shape[1]}x{problem.x_shape[2]} pixels with padding {problem.padding} "
            f"hold no {problem.w_shape[0]}x{problem.w_shape[1]} kernel of dilation "
            f"{problem.dilation}: the result would be empty"
        )
    if algorithm == "auto":
        return
    if algorithm not in SOLVERS:
        raise ValueError(f"algorithm: got {algorithm!r}, wanted 'auto' or one of {sorted(SOLVERS)}")
    device = of_platform(jax.default_backend())
    if not SOLVERS[algorithm].applies(problem, device):
        fit = [name for name, other in SOLVERS.items() if other.applies(problem, device)]
        raise ValueError(f"algorithm: {algorithm!r} cannot compute {problem}, but {fit} can")


def _pair(name: str, value: Any, minimum: int) -> Pair:
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    numbers = [isinstance(v, Integral) and not isinstance(v, bool) for v in pair]
    if len(pair) != 2 or not all(numbers) or min(pair) < minimum:
        raise ValueError(f"{name}: got {value!r}, wanted an int or a pair of ints >= {minimum}")
    return int(pair[0]), int(pair[1])


def _padding(value, sizes, window, stride, dilation) -> tuple[Pair, Pair]:
    """Returns ``((top, bottom), (left, right))`` for every accepted way to write the padding."""
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
        return _pair("padding", rows, 0), _pair("padding", columns, 0)
    except ValueError:
        raise ValueError(f"padding: got {value!r}, wanted {wanted}, all >= 0") from None


def _same(size: int, taps: int, stride: int, dilation: int) -> Pair:
    total = max(0, (-(-size // stride) - 1) * stride + (taps - 1) * dilation + 1 - size)
    return total // 2, total - total // 2
