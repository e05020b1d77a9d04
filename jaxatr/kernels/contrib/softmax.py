"""Softmax in MIOpen's two modes, as a problem to verify and time.

The only form calls ``jax.nn.softmax`` or ``jax.nn.log_softmax``, which XLA fuses. Programs should
call these directly.
"""

import dataclasses
from typing import Literal, TypeAlias, get_args

import jax
import numpy as np

from jaxatr.kernels.ops.differentiable import Direction, Form, draw, operation, wide
from jaxatr.kernels.options import IMAGES, Command, Option
from jaxatr.kernels.solver import register
from jaxatr.typing import Array

Mode: TypeAlias = Literal["instance", "channel"]


@dataclasses.dataclass(frozen=True)
class SoftmaxProblem:
    """One direction of a softmax.

    Attributes:
      direction: ``"forward"`` or ``"backward"``.
      mode: the values that sum to one: ``"instance"``, all values of an example, or
        ``"channel"``, the channels of each pixel.
      log: whether to compute the logarithm of the softmax.
      x_shape: ``(batch, height, width, channels)``.
      dtype: name of the element type.
    """

    direction: Direction
    mode: Mode
    log: bool
    x_shape: tuple[int, int, int, int]
    dtype: str

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes that are summed over."""
        return (1, 2, 3) if self.mode == "instance" else (3,)

    @property
    def key(self) -> str:
        """One line of text that identifies the problem in databases and records."""
        name, shape = "log_softmax" if self.log else "softmax", "x".join(map(str, self.x_shape))
        return f"{name} {self.direction} {self.mode} {shape} {self.dtype}"


def xla(problem: SoftmaxProblem, x: Array) -> Array:
    """Returns the softmax or log-softmax of ``jax.nn``."""
    return (jax.nn.log_softmax if problem.log else jax.nn.softmax)(x, axis=problem.axes)


def arguments(problem: SoftmaxProblem, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Returns random logits, and the cotangent of the backward direction."""
    count = 1 if problem.direction == "forward" else 2
    return tuple(draw(generator, problem.dtype, *[problem.x_shape] * count))


def reference(problem: SoftmaxProblem, given: tuple[np.ndarray, ...]) -> np.ndarray | tuple:
    """Returns the result, or the gradient of the logits."""
    x, *cotangent = wide(*given)
    shifted = x - x.max(problem.axes, keepdims=True)
    total = np.exp(shifted).sum(problem.axes, keepdims=True)
    y = np.exp(shifted) / total
    if problem.direction == "forward":
        return shifted - np.log(total) if problem.log else y
    (dy,) = cotangent
    if problem.log:
        return (dy - y * dy.sum(problem.axes, keepdims=True),)
    return (y * (dy - (dy * y).sum(problem.axes, keepdims=True)),)


def _from_options(direction, dtype, *, n, c, H, W, mode, log) -> SoftmaxProblem:
    return SoftmaxProblem(direction, mode, log, (n, H, W, c), dtype)


COMMAND = Command(
    "softmax",
    "Measures a softmax or its logarithm.",
    _from_options,
    {
        **IMAGES,
        "mode": Option(
            "channel", "Values that sum to one: an example's or a pixel's.", choices=get_args(Mode)
        ),
        "log": Option(False, "Compute the logarithm of the softmax."),
    },
)
OPERATION = operation("softmax", [Form("xla", xla)], arguments, reference, COMMAND)
register(SoftmaxProblem, OPERATION)
