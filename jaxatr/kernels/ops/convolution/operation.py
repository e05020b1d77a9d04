"""Convolution as an operation of the find step."""

from functools import cache
from typing import Any

from jaxatr.kernels.device import Device
from jaxatr.kernels.inlining import not_inlined
from jaxatr.kernels.ops.convolution import dead_taps, heuristic
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.convolution.reference import arguments, reference, tolerance
from jaxatr.kernels.ops.convolution.solvers import SOLVERS
from jaxatr.kernels.solver import Choice, Operation, register


def function(problem: ConvProblem, choice: Choice, device: Device) -> Any:
    """Returns the function that computes a problem, on CPU as a call that is not inlined.

    XLA's own convolution is inlined: it needs no protection from fusion, and its weight gradient is
    a hundred times slower inside a call.
    """
    if device.platform == "cpu" and choice.algorithm != "xla":
        return _called(problem, choice)
    return SOLVERS[choice.algorithm].build(problem, choice.config)


@cache
def _called(problem: ConvProblem, choice: Choice) -> Any:
    return not_inlined(SOLVERS[choice.algorithm].build(problem, choice.config))


def _heuristic(problem: ConvProblem, device: Device) -> Choice:
    name = heuristic.choose(problem) if device.platform == "cpu" else "xla"
    return Choice(name, SOLVERS[name].configs(problem)[0])


def _canonical(problem: ConvProblem, device: Device) -> ConvProblem:
    """Returns the problem without dead taps on CPU if that pays, and otherwise unchanged."""
    cut = device.platform == "cpu" and dead_taps.removal_pays(problem)
    return dead_taps.without_dead_taps(problem) if cut else problem


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
register(ConvProblem, OPERATION)
