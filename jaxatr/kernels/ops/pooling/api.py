"""The public functions: they check and normalise their arguments, then run a form."""

from jaxatr.kernels.ops.checks import check_images
from jaxatr.kernels.ops.differentiable import check_algorithm, run
from jaxatr.kernels.ops.pooling.operation import OPERATION
from jaxatr.kernels.ops.pooling.problem import Mode, Problem
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
    """Returns the maximum over windows; pixels beyond the edge count as minus infinity.

    Where several pixels share the maximum, the first (by rows) gets the gradient.

    Args:
      x: images.
      window: pixels of a window, one number or ``(rows, columns)``.
      stride: pixels between neighbouring windows, likewise; by default the window.
      padding: as of :func:`jaxatr.kernels.convolution`; less than the window.
      algorithm: ``"auto"``, as of :func:`jaxatr.kernels.convolution`, ``"taps"`` or ``"xla"``.

    Raises:
      ValueError: an argument is not one of the above, or no window fits.
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
    """Returns the average over windows, summed in float32 or wider.

    Args:
      x: images.
      window: as of :func:`max_pool`.
      stride: as of :func:`max_pool`.
      padding: as of :func:`max_pool`.
      include_padding: pixels beyond the edge count as zeros; otherwise they do not count.
      algorithm: as of :func:`max_pool`.

    Raises:
      ValueError: an argument is not one of the above, or no window fits.
    """
    mode: Mode = "average_inclusive" if include_padding else "average"
    return _pool(mode, x, window, stride, padding, algorithm)


def _pool(mode: Mode, x, window, stride, padding, algorithm) -> Array:
    check_images(x)
    window = pair("window", window, 1)
    stride = window if stride is None else pair("stride", stride, 1)
    around = edges(padding, x.shape[1:3], window, stride)
    if any(edge >= taps for taps, pad in zip(window, around, strict=True) for edge in pad):
        raise ValueError(f"padding: got {around}, wanted less than the window, {window}")
    problem = Problem("forward", mode, x.shape, window, stride, around, x.dtype.name)
    if min(problem.y_shape[1:3]) < 1:
        raise ValueError(f"window: got {window}, which fits nowhere in {x.shape[1:3]} pixels")
    check_algorithm(OPERATION.solvers, algorithm)
    return run(problem, algorithm, x)
