"""The seam between operations and the find step: problems, solvers, and the reference.

A *problem* is one thing to compute, with its shapes; a *solver* is one way to compute some
problems, with a number of configurations; an *operation* binds them together (the paper's III.A
and III.B: Khan et al. 2019, MIOpen). Nothing here knows any operation.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

from jaxatr.kernels.device import Device
from jaxatr.kernels.options import Command

#: Names and values of what a solver can be tuned by, sorted by name; empty for its only form.
Config: TypeAlias = tuple[tuple[str, int | str], ...]


@runtime_checkable  # the tests check annotations as they run
class Problem(Protocol):
    """Something to compute: frozen, hashable, and all that a choice may depend on."""

    @property
    def key(self) -> str:
        """A line of text that no other problem has, the same in every process and version."""
        ...


class Choice(NamedTuple):
    """A solver by its name, and one of its configurations."""

    algorithm: str
    config: Config = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the form that :func:`choice_from_json` reads."""
        return {"algorithm": self.algorithm, "config": dict(self.config)}


def choice_from_json(value: Any) -> Choice:
    """Returns the choice that was written.

    Raises:
      ValueError: ``value`` is no choice.
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
    """One way to compute the problems of an operation. It holds no state.

    Attributes:
      name: what it is called in every choice.
      version: raised by whoever changes what it computes or how fast it is; recorded choices of
        another version are not used.
    """

    name: str
    version: int = 1

    @abc.abstractmethod
    def applies(self, problem: Any, device: Device) -> bool:
        """Says whether it can compute a problem on a device."""

    @abc.abstractmethod
    def workspace_bytes(self, problem: Any) -> int:
        """Returns an estimate of the memory taken besides the arguments and the result."""

    def configs(self, problem: Any) -> Sequence[Config]:
        """Returns the configurations, a default that is always valid first."""
        del problem
        return ((),)

    @abc.abstractmethod
    def build(self, problem: Any, config: Config) -> Callable[..., Any]:
        """Returns the function of the problem's arguments, to be traced by jax."""


@dataclass(frozen=True, eq=False)
class Operation:
    """An operation as the find step sees it.

    Attributes:
      name: of the operation.
      solvers: by name, in the order in which they are tried.
      heuristic: ``(problem, device) -> Choice``, without measuring.
      function: ``(problem, choice, device) -> function`` of the problem's arguments, as programs
        run it.
      arguments: ``(problem, generator) -> tuple of arrays``, or of trees of them, random.
      reference: ``(problem, arguments) -> result``, in float64 and by plain means; a tree where
        there are several.
      tolerance: ``(problem, device) -> error`` that is accepted (:func:`jaxatr.kernels.find`).
      canonical: ``(problem, device) -> problem`` that stands for it where choices are looked up;
        by default itself.
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
        """Returns why a choice cannot be used for a problem, ``""`` if it can."""
        solver = self.solvers.get(choice.algorithm)
        if solver is None:
            return f"there is no algorithm {choice.algorithm!r} (any more)"
        if not solver.applies(problem, device):
            return f"{choice.algorithm!r} cannot compute it"
        if choice.config not in solver.configs(problem):
            return f"{choice.algorithm!r} has no configuration {dict(choice.config)} for it"
        return ""


_OPERATIONS: dict[type, Operation] = {}


def register(problem_type: type, operation: Operation) -> None:
    """Makes the operation of a type of problems known to :func:`operation_of`."""
    _OPERATIONS[problem_type] = operation


def operations() -> dict[str, Operation]:
    """Returns every operation that is known, by its name."""
    return {operation.name: operation for operation in _OPERATIONS.values()}


def operation_of(problem: Any) -> Operation:
    """Returns the operation that a problem belongs to.

    Raises:
      ValueError: it is no problem of a registered operation.
    """
    try:
        return _OPERATIONS[type(problem)]
    except KeyError:
        known = sorted(f"{kind.__module__}.{kind.__name__}" for kind in _OPERATIONS)
        raise ValueError(f"problem: got {problem!r}, wanted one of {', '.join(known)}") from None
