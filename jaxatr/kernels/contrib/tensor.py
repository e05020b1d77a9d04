"""MIOpen's tensor operations, as problems to verify and time.

``op(alpha1 a, alpha2 b) + beta c`` is elementwise, so XLA fuses it into one pass together with its
neighbours. Programs should write it with ``jax.numpy``.
"""

import dataclasses
from typing import Literal, TypeAlias, get_args

import jax.numpy as jnp
import numpy as np

from jaxatr.kernels.ops.differentiable import Direction, Form, draw, operation, wide
from jaxatr.kernels.options import IMAGES, Command, Option
from jaxatr.kernels.solver import register
from jaxatr.typing import Array

Name: TypeAlias = Literal["add", "mul", "min", "max"]
_XLA = {"add": jnp.add, "mul": jnp.multiply, "min": jnp.minimum, "max": jnp.maximum}
_NUMPY = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


@dataclasses.dataclass(frozen=True)
class TensorProblem:
    """One direction of ``op(alpha1 a, alpha2 b) + beta c``, computed in float32 or wider.

    Attributes:
      direction: ``"forward"`` or ``"backward"``.
      name: name of the operation ``op``.
      a_shape: shape of ``a``, ``c`` and the result.
      b_shape: shape of ``b``, which is broadcast along axes of size 1.
      scales: ``(alpha1, alpha2, beta)``.
      dtype: name of the element type.
    """

    direction: Direction
    name: Name
    a_shape: tuple[int, ...]
    b_shape: tuple[int, ...]
    scales: tuple[float, float, float]
    dtype: str

    @property
    def key(self) -> str:
        """One line of text that identifies the problem in databases and records."""
        a, b = ("x".join(map(str, shape)) for shape in (self.a_shape, self.b_shape))
        scales = " ".join(str(float(scale)) for scale in self.scales)
        return f"tensor {self.direction} {self.name} {a} {b} {scales} {self.dtype}"


def xla(problem: TensorProblem, a: Array, b: Array, c: Array) -> Array:
    """Computes the result with ``jax.numpy``."""
    alpha1, alpha2, beta = problem.scales
    single = jnp.promote_types(a.dtype, jnp.float32)
    a, b, c = (array.astype(single) for array in (a, b, c))
    return (_XLA[problem.name](alpha1 * a, alpha2 * b) + beta * c).astype(problem.dtype)


def arguments(problem: TensorProblem, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Returns random arrays, and the cotangent of the backward direction."""
    shapes = [problem.a_shape, problem.b_shape, problem.a_shape]
    if problem.direction == "backward":
        shapes.append(problem.a_shape)
    return tuple(draw(generator, problem.dtype, *shapes))


def reference(problem: TensorProblem, given: tuple[np.ndarray, ...]) -> np.ndarray | tuple:
    """Returns the result, or the gradients of ``a``, ``b`` and ``c``."""
    a, b, c, *cotangent = wide(*given)
    alpha1, alpha2, beta = problem.scales
    a, b = alpha1 * a, alpha2 * b
    if problem.direction == "forward":
        return _NUMPY[problem.name](a, b) + beta * c
    (dy,) = cotangent
    if problem.name == "add":
        da, db = dy, dy
    elif problem.name == "mul":
        da, db = dy * b, dy * a
    else:  # a tie splits the gradient in half
        below = (a < b) + (a == b) / 2
        share = below if problem.name == "min" else 1 - below
        da, db = dy * share, dy * (1 - share)
    repeated = tuple(k for k, size in enumerate(problem.b_shape) if size == 1)
    return alpha1 * da, alpha2 * db.sum(repeated, keepdims=True), beta * dy


def _from_options(
    direction, dtype, *, n, c, H, W, name, shared, alpha1, alpha2, beta
) -> TensorProblem:
    if stray := set(shared) - set("nHWc"):
        raise ValueError(f"--shared: got {sorted(stray)}, wanted some of the letters nHWc")
    a_shape = (n, H, W, c)
    b_shape = tuple(
        1 if letter in shared else size for letter, size in zip("nHWc", a_shape, strict=True)
    )
    return TensorProblem(direction, name, a_shape, b_shape, (alpha1, alpha2, beta), dtype)


COMMAND = Command(
    "tensor",
    "Measures an operation on two tensors: op(alpha1 a, alpha2 b) + beta c.",
    _from_options,
    {
        **IMAGES,
        "name": Option("add", "The operation.", choices=get_args(Name)),
        "shared": Option("", "Letters of the axes along which b has one element."),
        "alpha1": Option(1.0, "Factor of a."),
        "alpha2": Option(1.0, "Factor of b."),
        "beta": Option(0.0, "Factor of c, which is added to the result."),
    },
)
OPERATION = operation("tensor", [Form("xla", xla, differentiated=3)], arguments, reference, COMMAND)
register(TensorProblem, OPERATION)
