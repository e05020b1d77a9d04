"""Batch norm as an operation of the find step, with a float64 reference in NumPy."""

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
class BatchNormProblem:
    """One direction of a batch norm.

    Attributes:
      direction: ``"forward"``, or ``"backward"``: the gradients of ``x``, ``scale`` and ``shift``.
      mode: ``"spatial"`` or ``"per_activation"``.
      training: whether to use the batch's statistics; otherwise they are arguments.
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
        """One line of text that identifies the problem in databases and records."""
        kind = "training" if self.training else "inference"
        shape = "x".join(map(str, self.x_shape))
        return (
            f"batch_norm {self.direction} {self.mode} {kind} {self.activation} {shape} {self.dtype}"
        )

    @property
    def reduced(self) -> tuple[int, ...]:
        """The axes that the statistics are computed over."""
        return (0, 1, 2) if self.mode == "spatial" else (0,)


def xla(problem: BatchNormProblem, x: Array, scale: Array, shift: Array, *known: Array) -> Array:
    """Computes the norm by the public functions, which XLA fuses."""
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


def arguments(problem: BatchNormProblem, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Returns images, scale, shift and, as the problem needs them, statistics and the cotangent."""
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


def reference(problem: BatchNormProblem, given: tuple[np.ndarray, ...]) -> np.ndarray | tuple:
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


def _from_options(direction, dtype, *, n, c, H, W, mode, train, activation) -> BatchNormProblem:
    return BatchNormProblem(direction, mode, train, activation, (n, H, W, c), dtype)


COMMAND = Command(
    "bn",
    "Measures a batch normalisation and its activation.",
    _from_options,
    {
        **IMAGES,
        "mode": Option("spatial", "Statistics per channel or per activation.", choices=MODES),
        "train": Option(True, "Use the batch's statistics; with --notrain, given ones."),
        "activation": Option("none", "Activation after the norm.", choices=sorted(ACTIVATIONS)),
    },
)
OPERATION = operation(
    "batch_norm", [Form("xla", xla, differentiated=3)], arguments, reference, COMMAND
)
register(BatchNormProblem, OPERATION)
