"""Local response normalisation, across channels or within one (Krizhevsky et al. 2012)."""

import dataclasses
from typing import Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.kernels.ops.checks import as_images, check_algorithm_name
from jaxatr.kernels.ops.differentiable import (
    Direction,
    Form,
    draw,
    operation,
    run,
    wide,
)
from jaxatr.kernels.ops.windows import Shape
from jaxatr.kernels.options import IMAGES, Command, Option
from jaxatr.kernels.solver import register
from jaxatr.typing import Array, Float

Mode: TypeAlias = Literal["across", "within"]


@dataclasses.dataclass(frozen=True)
class NormProblem:
    """One direction of the norm.

    Attributes:
      direction: ``"forward"`` or ``"backward"``.
      mode: neighbours are channels of the same pixel (``"across"``), or pixels of the same channel
        (``"within"``).
      x_shape: ``(batch, height, width, channels)``.
      size: neighbours along an axis, including the element itself.
      alpha: weight of the mean square.
      beta: exponent.
      k: constant added to the weighted mean square.
      dtype: name of the element type.
    """

    direction: Direction
    mode: Mode
    x_shape: Shape
    size: int
    alpha: float
    beta: float
    k: float
    dtype: str

    @property
    def key(self) -> str:
        """One line of text that identifies the problem in databases and records."""
        shape = "x".join(map(str, self.x_shape))
        numbers = f"n{self.size} {float(self.alpha)} {float(self.beta)} {float(self.k)}"
        return f"response_norm {self.direction} {self.mode} {shape} {numbers} {self.dtype}"

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes along which the neighbours lie."""
        return (3,) if self.mode == "across" else (1, 2)

    @property
    def edge(self) -> tuple[int, int]:
        """Numbers of neighbours before and after an element."""
        return (self.size - 1) // 2, self.size // 2


def local_response_norm(
    x: Float[Array, "b h w c"],
    *,
    mode: Mode = "across",
    size: int = 5,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    algorithm: str = "auto",
) -> Float[Array, "b h w c"]:
    """Returns ``x / (k + alpha * mean)^beta``, with ``mean`` the mean square of the neighbours.

    Neighbours beyond the edge count as zeros. Computed in float32 or wider.

    Args:
      x: images.
      mode: neighbours are channels of the same pixel (``"across"``), or pixels of the same channel
        in a square (``"within"``).
      size: neighbours along an axis, including the element itself; an even size has one more
        neighbour after the element than before it.
      alpha: weight of the mean square.
      beta: exponent.
      k: constant added to the weighted mean square.
      algorithm: ``"auto"``, the fastest known for the problem, or ``"taps"`` or ``"xla"``.

    Raises:
      ValueError: the mode, the size or the algorithm is invalid.
    """
    if mode not in ("across", "within"):
        raise ValueError(f"mode: got {mode!r}, wanted 'across' or 'within'")
    if size < 1:
        raise ValueError(f"size: got {size}, wanted at least 1")
    x = as_images(x)
    check_algorithm_name(algorithm, OPERATION.solvers)
    problem = NormProblem("forward", mode, x.shape, size, alpha, beta, k, x.dtype.name)
    return run(problem, algorithm, x)


def taps(problem: NormProblem, x: Array) -> Array:
    """Computes the norm with the neighbours summed as slices, one axis after the other."""

    def sums(squares: Array) -> Array:
        for axis in problem.axes:
            pads = [problem.edge if k == axis else (0, 0) for k in range(4)]
            padded, count = jnp.pad(squares, pads), squares.shape[axis]
            parts = [
                jax.lax.slice_in_dim(padded, start, start + count, axis=axis)
                for start in range(problem.size)
            ]
            squares = sum(parts[1:], start=parts[0])
        return squares

    return _normalised(problem, x, sums)


def xla(problem: NormProblem, x: Array) -> Array:
    """Computes the norm with the neighbours summed by ``reduce_window``."""
    window = [problem.size if axis in problem.axes else 1 for axis in range(4)]
    pads = [problem.edge if axis in problem.axes else (0, 0) for axis in range(4)]
    sums = lambda a: jax.lax.reduce_window(a, 0.0, jax.lax.add, window, [1] * 4, pads)  # noqa: E731
    return _normalised(problem, x, sums)


def _normalised(problem: NormProblem, x: Array, sums) -> Array:
    wider = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    mean = sums(wider**2) / problem.size ** len(problem.axes)
    return (wider * (problem.k + problem.alpha * mean) ** -problem.beta).astype(x.dtype)


def arguments(problem: NormProblem, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Returns random images, and the cotangent of the backward direction."""
    count = 1 if problem.direction == "forward" else 2
    return tuple(draw(generator, problem.dtype, *[problem.x_shape] * count))


def reference(problem: NormProblem, given: tuple[np.ndarray, ...]) -> np.ndarray | tuple:
    """Returns the result, or the gradient of the images."""
    x, *cotangent = wide(*given)
    alpha = problem.alpha / problem.size ** len(problem.axes)
    norm = problem.k + alpha * _sums(problem, x**2, problem.edge)
    if problem.direction == "forward":
        return x * norm**-problem.beta
    (dy,) = cotangent
    # The transposed window: the numbers of neighbours before and after are swapped.
    before, after = problem.edge
    met = _sums(problem, dy * x * norm ** (-problem.beta - 1), (after, before))
    return (dy * norm**-problem.beta - 2 * alpha * problem.beta * x * met,)


def _sums(problem: NormProblem, a: np.ndarray, edge: tuple[int, int]) -> np.ndarray:
    padded = np.pad(a, [edge if axis in problem.axes else (0, 0) for axis in range(4)])
    axes = problem.axes
    windows = np.lib.stride_tricks.sliding_window_view(padded, (problem.size,) * len(axes), axes)
    return windows.sum(tuple(range(4, windows.ndim)))


def _from_options(direction, dtype, *, n, c, H, W, N, mode, alpha, beta, k) -> NormProblem:
    return NormProblem(direction, mode, (n, H, W, c), N, alpha, beta, k, dtype)


COMMAND = Command(
    "lrn",
    "Measures a local response normalisation.",
    _from_options,
    {
        **IMAGES,
        "N": Option(5, "neighbours along an axis, including the element itself", 1),
        "mode": Option("across", "Across channels or within one.", choices=get_args(Mode)),
        "alpha": Option(1e-4, "Weight of the mean square."),
        "beta": Option(0.75, "Exponent."),
        "k": Option(1.0, "Constant added to the weighted mean square."),
    },
)
OPERATION = operation(
    "response_norm", [Form("taps", taps), Form("xla", xla)], arguments, reference, COMMAND
)
register(NormProblem, OPERATION)
