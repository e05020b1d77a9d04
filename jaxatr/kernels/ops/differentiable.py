"""Operations whose solvers are functions that jax differentiates.

Their problems are frozen dataclasses with a ``direction`` and a ``dtype``. *Forward* is the
function itself. *Backward* takes the function's arguments and the cotangent of its result and
returns the gradients, including the necessary part of the forward pass, as in a training step.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import jax
import numpy as np

from jaxatr.kernels import choosing
from jaxatr.kernels.device import Device, of_platform
from jaxatr.kernels.ops.tolerance import PLAIN
from jaxatr.kernels.options import Command
from jaxatr.kernels.solver import Choice, Config, Operation, Solver, operation_of
from jaxatr.typing import Array

Direction: TypeAlias = Literal["forward", "backward"]


class Form(Solver):
    """A solver for every problem on every device, given as a function."""

    def __init__(self, name: str, run: Callable[..., Any], differentiated: int = 1):
        """Makes the solver.

        Args:
          name: the name of the solver.
          run: ``(problem, *arguments) -> result``, the forward function.
          differentiated: the number of leading arguments that have gradients.
        """
        self.name, self.run, self._count = name, run, differentiated

    def applies(self, problem: Any, device: Device) -> bool:
        """Returns True."""
        return True

    def workspace_bytes(self, problem: Any) -> int:
        """Returns 0, because XLA's workspace is unknown."""
        return 0

    def build(self, problem: Any, config: Config) -> Callable[..., Any]:
        """Returns the function that computes the problem's direction."""
        if problem.direction == "forward":
            return partial(self.run, problem)

        def backward(*given: Array) -> tuple[Array, ...]:
            *inputs, cotangent = given
            fixed = inputs[self._count :]
            forward = lambda *varied: self.run(problem, *varied, *fixed)  # noqa: E731
            return jax.vjp(forward, *inputs[: self._count])[1](cotangent)

        return backward


def operation(
    name: str,
    forms: Sequence[Form],
    arguments: Callable[[Any, np.random.Generator], tuple[np.ndarray, ...]],
    reference: Callable[[Any, tuple[np.ndarray, ...]], Any],
    command: Command,
) -> Operation:
    """Returns the operation of some forms.

    Args:
      name: the name of the operation.
      forms: its solvers; the heuristic chooses the first.
      arguments: ``(problem, generator) -> arrays``, random arguments.
      reference: ``(problem, arguments) -> result``, a float64 reference.
      command: the sub-command of ``jaxatr tune``.
    """
    solvers = {form.name: form for form in forms}
    return Operation(
        name=name,
        solvers=solvers,
        heuristic=lambda problem, device: Choice(forms[0].name),
        function=lambda problem, choice, device: solvers[choice.algorithm].build(problem, ()),
        arguments=arguments,
        reference=reference,
        tolerance=lambda problem, device: PLAIN.get(problem.dtype, 0.0),
        command=command,
    )


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def run(problem: Any, algorithm: str, x: Array) -> Array:
    """Computes a forward problem; its derivative uses the form chosen for the backward problem.

    Args:
      problem: the forward problem.
      algorithm: the name of a form, or ``"auto"`` to let the current chooser decide when the
        program is traced, for jax's default platform.
      x: the argument.
    """
    return _form(problem, algorithm)(problem, x)


@run.defjvp
def _derivative(problem, algorithm, primals, tangents):
    form = _form(dataclasses.replace(problem, direction="backward"), algorithm)
    return jax.jvp(partial(form, problem), primals, tangents)


def _form(problem: Any, algorithm: str) -> Callable[..., Any]:
    known = operation_of(problem)
    if algorithm == "auto":
        device = of_platform(jax.default_backend())
        algorithm = choosing.current().choose(known, problem, device).algorithm
    form: Any = known.solvers[algorithm]
    return form.run


def draw(generator: np.random.Generator, dtype: str, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Returns arrays of standard normal numbers of a type."""
    return [generator.standard_normal(shape).astype(dtype) for shape in shapes]


def wide(*arrays: np.ndarray) -> list[np.ndarray]:
    """Returns the arrays in float64."""
    return [np.asarray(array).astype(np.float64) for array in arrays]
