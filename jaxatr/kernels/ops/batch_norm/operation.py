"""Batch norm as the find step sees it, with its definition in NumPy's float64."""

import dataclasses

import jax.numpy as jnp
import numpy as np

from jaxatr.kernels.activations import ACTIVATIONS
from jaxatr.kernels.ops.batch_norm.api import MODES, Mode, batch_norm, batch_statistics
from jaxatr.kernels.ops.differentiable import Direction, Form, draw, operation, wide
from jaxatr.kernels.options import IMAGES, Command, Option
from jaxatr.kernels.solver import register
from jaxatr.typing import Array

_EPSILON = 1e-5


@dataclasses.dataclass(frozen=True)
class Problem:
    """One direction of a batch norm.

    Attributes:
      direction: ``"forward"``, or ``"backward"``: the gradients of ``x``, ``scale`` and ``shift``.
      mode: ``"spatial"`` or ``"per_activation"``.
      training: by the batch's own statistics; otherwise they are given.
      activation: a name of :data:`~jaxatr.kernels.activations.ACTIVATIONS`.
      x_shape: ``(batch, height, width, channels)``.
      dtype: name of the images' type; scale, shift and statistics are float32 or wider.
    """

    direction: Direction
    mode: Mode
    training: bool
    activation: str
    x_shape: tuple[int, int, int, int]
    dtype: str

    @property
    def key(self) -> str:
        """The problem in one line, by which its choice is recorded."""
        kind = "training" if self.training else "inference"
        shape = "x".join(map(str, self.x_shape))
        return (
            f"batch_norm {self.direction} {self.mode} {kind} {self.activation} {shape} {self.dtype}"
        )

    @property
    def reduced(self) -> tuple[int, ...]:
        """The axes that the statistics are over."""
        return (0, 1, 2) if self.mode == "spatial" else (0,)


def xla(problem: Problem, x: Array, scale: Array, shift: Array, *known: Array) -> Array:
    """Returns the public functions' result, which XLA fuses."""
    mean, variance = batch_statistics(x, mode=problem.mode) if problem.training else known
    return batch_norm(
        x,
        scale,
        shift,
        mean,
        variance,
        mode=problem.mode,
        epsilon=_EPSILON,
        activation=problem.activation,
    )


def arguments(problem: Problem, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Returns images, scale, shift, known statistics and the cotangent, as far as they are read."""
    shape = tuple(n for axis, n in enumerate(problem.x_shape) if axis not in problem.reduced)
    single = jnp.promote_types(problem.dtype, jnp.float32).name
    (x,) = draw(generator, problem.dtype, problem.x_shape)
    given = [x, *draw(generator, single, shape, shape)]
    if not problem.training:
        (mean,) = draw(generator, single, shape)
        given += [mean, generator.uniform(0.5, 2.0, shape).astype(single)]
    if problem.direction == "backward":
        given += draw(generator, problem.dtype, problem.x_shape)
    return tuple(given)


def reference(problem: Problem, given: tuple[np.ndarray, ...]) -> np.ndarray | tuple:
    """Returns the result, or the gradients of images, scale and shift."""
    x, scale, shift, *rest = wide(*given)
    axes, training = problem.reduced, problem.training
    mean = x.mean(axes, keepdims=True) if training else rest[0]
    variance = x.var(axes, keepdims=True) if training else rest[1]
    deviation = np.sqrt(variance + _EPSILON)
    normal = (x - mean) / deviation
    value, slope = _activated(problem.activation, normal * scale + shift)
    if problem.direction == "forward":
        return value
    dy = rest[-1] * slope
    dscale, dshift = (dy * normal).sum(axes), dy.sum(axes)
    dnormal = dy * scale
    if training:
        dnormal = dnormal - dnormal.mean(axes, keepdims=True)
        dnormal = dnormal - normal * (dy * scale * normal).mean(axes, keepdims=True)
    return dnormal / deviation, dscale, dshift


def _activated(name: str, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the activation and its derivative."""
    sigmoid, positive = 1 / (1 + np.exp(-a)), (a > 0).astype(np.float64)
    return {
        "none": (a, np.ones_like(a)),
        "relu": (a * positive, positive),
        "relu6": (np.clip(a, 0, 6), positive * (a < 6)),
        "leaky_relu": (np.where(a > 0, a, 0.01 * a), np.where(a > 0, 1, 0.01)),
        "elu": (np.where(a > 0, a, np.expm1(a)), np.where(a > 0, 1, np.exp(a))),
        "abs": (np.abs(a), np.sign(a)),
        "tanh": (np.tanh(a), 1 - np.tanh(a) ** 2),
        "sigmoid": (sigmoid, sigmoid * (1 - sigmoid)),
        "swish": (a * sigmoid, sigmoid * (1 + a * (1 - sigmoid))),
    }[name]


def _from_options(direction, dtype, *, n, c, H, W, mode, train, activation) -> Problem:
    return Problem(direction, mode, train, activation, (n, H, W, c), dtype)


COMMAND = Command(
    "bn",
    _from_options,
    {
        **IMAGES,
        "mode": Option("spatial", "Statistics per channel or per activation.", choices=MODES),
        "train": Option(True, "By the batch's statistics; --notrain: by given ones."),
        "activation": Option("none", "What follows the norm.", choices=sorted(ACTIVATIONS)),
    },
)
OPERATION = operation(
    "batch_norm", [Form("xla", xla, differentiated=3)], arguments, reference, COMMAND
)
register(Problem, OPERATION)
