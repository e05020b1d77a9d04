"""Fusion plans: sequences of operations, compiled once for a problem and run with any values."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxatr.kernels.contrib.fusion.graph import combinations, refusal
from jaxatr.kernels.contrib.fusion.operations import (
    Convolution,
    FusionProblem,
    Operation,
    forward,
)
from jaxatr.kernels.contrib.fusion.solvers import SOLVERS, Accuracy
from jaxatr.kernels.device import Device, describe
from jaxatr.kernels.ops.windows import Shape
from jaxatr.typing import Array


class Fusion(NamedTuple):
    """A supported combination of operations.

    Attributes:
      combination: one letter per operation: C convolution, B bias, N batch norm, R residual,
        A activation.
      solver: name of the solver that computes it.
      platforms: the platforms that it runs on; empty for all.
      constraints: the constraints on the operations, in words.
    """

    combination: str
    solver: str
    platforms: tuple[str, ...]
    constraints: tuple[str, ...]


def supported_fusions() -> list[Fusion]:
    """Returns every combination that a solver accepts, read from the solvers' graphs."""
    return [
        Fusion(combination, name, solver.platforms, texts)
        for name, solver in SOLVERS.items()
        for combination, texts in combinations(solver.edges)
    ]


@dataclasses.dataclass(frozen=True)
class CompiledPlan:
    """A compiled plan, ready to run.

    Attributes:
      solver: name of the solver that computes it.
      shapes: shapes of the arguments by name.
      function: the computation as a traceable function of the arguments by name, for jax's
        transformations; the Pallas kernels have no derivative.
      executable: the compiled program that :meth:`execute` calls.
    """

    solver: str
    shapes: Mapping[str, Shape]
    function: Callable[[dict[str, Array]], Array]
    executable: Callable[[dict[str, Array]], Array]

    @property
    def accuracy(self) -> Accuracy:
        """The solver's rounding, ``"wide"`` or ``"narrow"`` (see :data:`Accuracy`)."""
        return SOLVERS[self.solver].accuracy

    def execute(self, arguments: Mapping[str, Array]) -> Array:
        """Runs the plan on the arguments by name.

        Raises:
          ValueError: an argument is missing or unexpected, or has the wrong shape.
          TypeError: an argument has another type than the plan was compiled for.
        """
        if set(arguments) != set(self.shapes):
            raise ValueError(f"arguments: got {sorted(arguments)}, wanted {sorted(self.shapes)}")
        for name, shape in self.shapes.items():
            if arguments[name].shape != shape:
                raise ValueError(f"{name}: got shape {arguments[name].shape}, wanted {shape}")
        return self.executable(dict(arguments))


class FusionPlan:
    """A sequence of operations to be computed as one (section V of the MIOpen paper).

    >>> from jaxatr.kernels.contrib.fusion import Activation, BatchNorm
    >>> plan = FusionPlan([BatchNorm(training=True), Activation("relu")])
    >>> compiled = plan.compile(FusionProblem((2, 1, 1, 1)))
    >>> x, one = jnp.array([0.0, 2.0]).reshape(2, 1, 1, 1), jnp.ones(1)
    >>> compiled.execute({"x": x, "scale": one, "shift": one}).round(3).ravel().tolist()
    [0.0, 2.0]
    """

    def __init__(self, operations: Sequence[Operation]) -> None:
        """Stores the operations, in the order in which they are applied."""
        self.operations = tuple(operations)

    def compile(self, problem: FusionProblem, *, solver: str = "auto") -> CompiledPlan:
        """Compiles the plan for a problem.

        ``"auto"`` is XLA: on a GPU ``"xla_folded"`` if it accepts the sequence, which is then a
        single cuDNN call, and ``"xla"`` otherwise. On an H200, ``"hopper"`` was 1.26 times as fast
        as ``"xla"``, which is as accurate, and 0.97 times as fast as ``"xla_folded"`` (geometric
        means over eight layers in bfloat16); it was faster than both for four of the layers.

        Args:
          problem: the shapes and the type.
          solver: ``"auto"``, or a key of :data:`SOLVERS`.

        Raises:
          NotImplementedError: the solver does not accept the sequence; the message has the reason.
          ValueError: the solver is unknown, or the shapes do not fit together.
        """
        here = describe(jax.local_devices()[0])
        name = self.choose(problem, here) if solver == "auto" else solver
        if name not in SOLVERS:
            raise ValueError(f"solver: got {solver!r}, wanted 'auto' or one of {sorted(SOLVERS)}")
        reason = refusal(SOLVERS[name].edges, self.operations, problem)
        if reason is None and not SOLVERS[name].runs_on(here):
            reason = f"it does not run on {here.kind}"
        if reason is not None:
            raise NotImplementedError(f"{name} does not take {self.combination}: {reason}")
        shapes = self.arguments(problem)
        function = partial(SOLVERS[name].run, self.operations)
        wide = jnp.promote_types(problem.dtype, jnp.float32)
        images = ("x", "w", "residual")
        structs = {
            key: jax.ShapeDtypeStruct(shape, jnp.dtype(problem.dtype) if key in images else wide)
            for key, shape in shapes.items()
        }
        executable: Any = jax.jit(function).lower(structs).compile()
        return CompiledPlan(name, shapes, function, executable)

    def choose(self, problem: FusionProblem, device: Device) -> str:
        """Returns the solver that ``"auto"`` stands for on a device, which need not be present."""
        folded = refusal(SOLVERS["xla_folded"].edges, self.operations, problem) is None
        return "xla_folded" if device.platform == "gpu" and folded else "xla"

    @property
    def combination(self) -> str:
        """The sequence in the letters of the paper's tables, such as CBNA."""
        return "".join(operation.letter for operation in self.operations)

    def arguments(self, problem: FusionProblem) -> dict[str, Shape]:
        """Returns the shapes of the arguments by name, ``x`` first.

        Vectors (``bias``, ``scale``, ``shift``, ``mean``, ``variance``) are float32 if the
        problem's type is narrower.
        """
        shapes, y = {"x": problem.x_shape}, problem.x_shape
        for operation in self.operations:
            if isinstance(operation, Convolution) and problem.w_shape is not None:
                shapes["w"] = problem.w_shape
                y = forward(operation, problem).y_shape
            shapes |= operation.reads(y)
        return shapes
