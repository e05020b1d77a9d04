"""The declaration of an algorithm: one way to compute one direction of one layer."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxatr.kernels.ops.recurrent.cells import State
from jaxatr.kernels.ops.recurrent.loop import loop
from jaxatr.kernels.ops.recurrent.problem import RecurrentProblem
from jaxatr.kernels.ops.recurrent.weights import Weights
from jaxatr.kernels.pallas import Device
from jaxatr.typing import Array


class Algorithm(NamedTuple):
    """One way to compute one direction of one layer.

    Attributes:
      applies: ``problem -> bool``, whether it can compute the problem.
      run: ``(problem, weights, x, state, mask, reverse, unroll=1)`` returns the states ``h`` after
        each step, ``[t, b, h]``, and the final state. Arrays are time-major: ``x`` is
        ``[t, b, d]``, and ``mask`` is ``[t, b, 1]`` or None. ``reverse`` runs from the last step to
        the first, and ``unroll`` is the number of steps per iteration of a loop.
      device: the device that its kernel is for, or None for any.
      backward: whether the find step may choose it for the derivative.
      unrolls: whether it has a loop that ``unroll`` changes.
      version: raised with every change of its results or its speed (:class:`~.solver.Solver`).
    """

    applies: Callable[[RecurrentProblem], bool]
    run: Callable[..., tuple[Array, State]]
    device: Device | None = None
    backward: bool = True
    unrolls: bool = True
    version: int = 2


def of_steps(
    steps: Callable[[RecurrentProblem, Weights, Array], tuple[Callable[..., Any], Array]],
) -> Callable[..., tuple[Array, State]]:
    """Makes an algorithm's ``run`` from its steps, with jax's own derivative.

    Args:
      steps: ``(problem, weights, x)`` returns the step, ``(state, input) -> (state, saved)``, and
        its inputs, ``[t, ...]``.
    """

    def run(
        problem: RecurrentProblem,
        weights: Weights,
        x: Array,
        state: State,
        mask: Array | None,
        reverse: bool,
        unroll: int = 1,
    ) -> tuple[Array, State]:
        step, inputs = steps(problem, weights, x)
        final, ((hs, *_), _) = loop(step, state, inputs, mask, reverse, unroll)
        return hs, final

    return run
