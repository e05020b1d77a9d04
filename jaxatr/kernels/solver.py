"""The interface between operations and the find step: problems, solvers and operations.

A *problem* is one computation with its shapes and types. A *solver* is one way to compute some
problems, in one or more configurations. An *operation* binds the two together (Khan et al. 2019,
MIOpen, sections III.A and III.B). This module does not depend on any particular operation.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

from jaxatr.kernels.device import Device
from jaxatr.kernels.options import Command

#: Names and values of a solver's tuning parameters, sorted by name; empty if it has none.
Config: TypeAlias = tuple[tuple[str, int | str], ...]


@runtime_checkable  # the tests check annotations as they run
class Problem(Protocol):
    """A computation: frozen, hashable, with everything that a choice of algorithm may depend on."""

    @property
    def key(self) -> str:
        """A unique line of text, the same in every process and version."""
        ...


class Choice(NamedTuple):
    """The name of a solver and one of its configurations."""

    algorithm: str
    config: Config = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the form that :func:`choice_from_json` reads."""
        return {"algorithm": self.algorithm, "config": dict(self.config)}


def choice_from_json(value: Any) -> Choice:
    """Parses a choice written by :meth:`Choice.to_json`.

    Raises:
      ValueError: ``value`` is not a choice.
    """
    try:
        choice = Choice(value["algorithm"], tuple(sorted(value["config"].items())))
        values = [choice.algorithm, *(item for _, item in choice.config)]
    except (KeyError, TypeError, AttributeError):
        values = [None]
    if not isinstance(values[0], str) or not all(isinstance(v, int | str) for v in values):
        raise ValueError(f"got {value!r}, wanted an algorithm's name and its configuration")
    return choice


class Solver(abc.ABC):
    """A stateless way to compute the problems of an operation.

    Attributes:
      name: the name by which choices refer to it.
      version: to be raised with every change of its results or its speed; recorded choices of
        another version are not used.
      run: the function that :meth:`build` binds to a problem, unless a solver has a ``build``.
    """

    name: str
    version: int = 1
    run: Callable[..., Any]

    @abc.abstractmethod
    def applies(self, problem: Any, device: Device) -> bool:
        """Returns whether the solver can compute a problem on a device."""

    @abc.abstractmethod
    def workspace_bytes(self, problem: Any) -> int:
        """Returns an estimate of the memory used besides the arguments and the result."""

    def configs(self, problem: Any) -> Sequence[Config]:
        """Returns the configurations; the first is the default and always valid."""
        del problem
        return ((),)

    def build(self, problem: Any, config: Config) -> Callable[..., Any]:
        """Returns a traceable function of the problem's arguments that computes the result.

        By default it is ``run``, whose first arguments are the configuration's values and the
        problem.
        """
        return partial(self.run, *(value for _, value in config), problem)


@dataclass(frozen=True, eq=False)
class Operation:
    """The description of an operation that the find step works with.

    Attributes:
      name: the name of the operation.
      solvers: the solvers by name, in the order in which they are tried.
      heuristic: ``(problem, device) -> Choice``, the choice without a measurement.
      function: ``(problem, choice, device) -> function`` of the problem's arguments, as programs
        run it.
      arguments: ``(problem, generator) -> tuple`` of random arrays, or of trees of them.
      reference: ``(problem, arguments) -> result``, a straightforward float64 computation; several
        results form a tree.
      tolerance: ``(problem, device) -> error``, the largest accepted error
        (:func:`jaxatr.kernels.find`).
      canonical: ``(problem, device) -> problem``, the equivalent problem by which choices are
        recorded; by default the problem itself.
      command: the sub-command of ``jaxatr tune`` that measures its problems, if any.
    """

    name: str
    solvers: Mapping[str, Solver]
    heuristic: Callable[[Any, Device], Choice]
    function: Callable[[Any, Choice, Device], Callable[..., Any]]
    arguments: Callable[[Any, np.random.Generator], tuple[Any, ...]]
    reference: Callable[[Any, tuple[Any, ...]], Any]
    tolerance: Callable[[Any, Device], float]
    canonical: Callable[[Any, Device], Any] = lambda problem, device: problem
    command: Command | None = None

    def refusal(self, problem: Any, choice: Choice, device: Device) -> str:
        """Returns why a choice cannot be used for a problem, or ``""`` if it can."""
        solver = self.solvers.get(choice.algorithm)
        if solver is None:
            return f"the algorithm {choice.algorithm!r} does not exist"
        if not solver.applies(problem, device):
            return f"{choice.algorithm!r} cannot compute it"
        if choice.config not in solver.configs(problem):
            return f"{choice.algorithm!r} has no configuration {dict(choice.config)} for it"
        return ""


_OPERATIONS: dict[type, Operation] = {}


def register(problem_type: type, operation: Operation) -> None:
    """Registers the operation of a type of problem, for :func:`operation_of`."""
    _OPERATIONS[problem_type] = operation


def operations() -> dict[str, Operation]:
    """Returns all registered operations by name."""
    return {operation.name: operation for operation in _OPERATIONS.values()}


def operation_of(problem: Any) -> Operation:
    """Returns the operation that a problem belongs to.

    Raises:
      ValueError: no operation is registered for this type of problem.
    """
    try:
        return _OPERATIONS[type(problem)]
    except KeyError:
        known = sorted(f"{kind.__module__}.{kind.__name__}" for kind in _OPERATIONS)
        raise ValueError(f"problem: got {problem!r}, wanted one of {', '.join(known)}") from None
