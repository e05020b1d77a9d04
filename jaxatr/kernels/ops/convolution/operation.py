"""The convolution as the find step sees it."""

from functools import cache
from typing import Any

from jaxatr.kernels.device import Device
from jaxatr.kernels.ops.convolution import heuristic, trim
from jaxatr.kernels.ops.convolution.problem import Problem
from jaxatr.kernels.ops.convolution.reference import arguments, reference, tolerance
from jaxatr.kernels.ops.convolution.solvers import SOLVERS
from jaxatr.kernels.outline import as_call
from jaxatr.kernels.solver import Choice, Operation, register


def function(problem: Problem, choice: Choice, device: Device) -> Any:
    """Returns the function that computes a problem, outlined on CPU unless it is XLA's own.

    That operation needs no protection from fusion, and its weight gradient is a hundred times
    slower inside of a call.
    """
    if device.platform == "cpu" and choice.algorithm != "xla":
        return _outlined(problem, choice)
    return SOLVERS[choice.algorithm].build(problem, choice.config)


@cache
def _outlined(problem: Problem, choice: Choice) -> Any:
    return as_call(SOLVERS[choice.algorithm].build(problem, choice.config))


def _heuristic(problem: Problem, device: Device) -> Choice:
    name = heuristic.choose(problem) if device.platform == "cpu" else "xla"
    return Choice(name, SOLVERS[name].configs(problem)[0])


def _canonical(problem: Problem, device: Device) -> Problem:
    """Returns the problem without the taps that meet nothing, on CPU, and where that pays."""
    return trim.trimmed(problem) if device.platform == "cpu" and trim.pays(problem) else problem


OPERATION = Operation(
    name="convolution",
    solvers=SOLVERS,
    heuristic=_heuristic,
    function=function,
    arguments=arguments,
    reference=reference,
    tolerance=tolerance,
    canonical=_canonical,
)
register(Problem, OPERATION)
