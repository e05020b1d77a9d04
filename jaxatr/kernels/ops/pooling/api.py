"""The public pooling functions, which check and normalise their arguments and run a form."""

from jaxatr.kernels.ops.checks import as_images, check_algorithm_name
from jaxatr.kernels.ops.differentiable import run
from jaxatr.kernels.ops.pooling.operation import OPERATION
from jaxatr.kernels.ops.pooling.problem import Mode, PoolingProblem
from jaxatr.kernels.ops.windows import Padding, Pair, edges, pair
from jaxatr.typing import Array, Float


def max_pool(
    x: Float[Array, "b h w c"],
    window: int | Pair,
    stride: int | Pair | None = None,
    padding: Padding = 0,
    *,
    algorithm: str = "auto",
) -> Float[Array, "b h2 w2 c"]:
    """Computes the maximum over windows; padding counts as minus infinity.

    If several pixels share the maximum, the first one in row-major order gets the gradient.

    Args:
      x: images.
      window: size of the window, one number or ``(rows, columns)``.
      stride: pixels between neighbouring windows, one number or ``(rows, columns)``; by default
        the window's size.
      padding: pixels around the image, less than the window: one number, ``(rows, columns)``,
        ``((top, bottom), (left, right))``, ``"VALID"`` or ``"SAME"``.
      algorithm: ``"auto"``, the fastest known for the problem, or ``"taps"`` or ``"xla"``.

    Raises:
      ValueError: an argument is invalid, or no window fits.
    """
    return _pool("max", x, window, stride, padding, algorithm)


def average_pool(
    x: Float[Array, "b h w c"],
    window: int | Pair,
    stride: int | Pair | None = None,
    padding: Padding = 0,
    *,
    include_padding: bool = False,
    algorithm: str = "auto",
) -> Float[Array, "b h2 w2 c"]:
    """Computes the average over windows, summed in float32 or wider.

    The other arguments are those of :func:`max_pool`.

    Args:
      include_padding: whether padding counts as zeros in the average; by default it is excluded.
    """
    mode: Mode = "average_inclusive" if include_padding else "average"
    return _pool(mode, x, window, stride, padding, algorithm)


def _pool(mode: Mode, x, window, stride, padding, algorithm) -> Array:
    x = as_images(x)
    window = pair("window", window, 1)
    stride = window if stride is None else pair("stride", stride, 1)
    around = edges(padding, x.shape[1:3], window, stride)
    if any(edge >= taps for taps, pad in zip(window, around, strict=True) for edge in pad):
        raise ValueError(f"padding: got {around}, wanted less than the window, {window}")
    problem = PoolingProblem("forward", mode, x.shape, window, stride, around, x.dtype.name)
    if min(problem.y_shape[1:3]) < 1:
        raise ValueError(f"window: got {window}, which does not fit in {x.shape[1:3]} pixels")
    check_algorithm_name(algorithm, OPERATION.solvers)
    return run(problem, algorithm, x)
