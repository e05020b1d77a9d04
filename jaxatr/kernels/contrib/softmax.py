"""Softmax in MIOpen's two modes, as problems to be verified and timed.

XLA fuses it, so there is nothing to add: a program calls ``jax.nn.softmax`` or
``jax.nn.log_softmax`` itself, which is what the one form here does.
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
class Problem:
    """One direction of a softmax.

    Attributes:
      direction: ``"forward"`` or ``"backward"``.
      mode: what sums to one: ``"instance"``, all numbers of an example, or ``"channel"``, the
        channels of each pixel.
      log: the logarithm is asked for.
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
        """The problem in one line, by which its choice is recorded."""
        name, shape = "log_softmax" if self.log else "softmax", "x".join(map(str, self.x_shape))
        return f"{name} {self.direction} {self.mode} {shape} {self.dtype}"


def xla(problem: Problem, x: Array) -> Array:
    """Returns jax's own."""
    return (jax.nn.log_softmax if problem.log else jax.nn.softmax)(x, axis=problem.axes)


def arguments(problem: Problem, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Returns random logits, and the cotangent of the backward direction."""
    count = 1 if problem.direction == "forward" else 2
    return tuple(draw(generator, problem.dtype, *[problem.x_shape] * count))


def reference(problem: Problem, given: tuple[np.ndarray, ...]) -> np.ndarray | tuple:
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


def _from_options(direction, dtype, *, n, c, H, W, mode, log) -> Problem:
    return Problem(direction, mode, log, (n, H, W, c), dtype)


COMMAND = Command(
    "softmax",
    _from_options,
    {
        **IMAGES,
        "mode": Option(
            "channel", "What sums to one: of an example, or of a pixel.", choices=get_args(Mode)
        ),
        "log": Option(False, "The logarithm of the softmax."),
    },
)
OPERATION = operation("softmax", [Form("xla", xla)], arguments, reference, COMMAND)
register(Problem, OPERATION)
