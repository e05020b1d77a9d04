"""The choice behind ``"auto"``: by the database and the rules, by a record, or for a collector.

The decision in force is a context that jax knows about: a function traced under one is traced
anew under another.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import jax
import jax.export

from jaxatr.kernels import database
from jaxatr.kernels.benchmark import program
from jaxatr.kernels.device import Device, of_platform
from jaxatr.kernels.find import found_choice
from jaxatr.kernels.solver import Choice, Operation, choice_from_json


@runtime_checkable
class Chooser(Protocol):
    """Decides; hashable, because it is a parameter of jax's primitives."""

    def choose(self, operation: Operation, problem: Any, device: Device) -> Choice:
        """Returns the choice for a canonical problem on a device."""
        ...


class _Immediate:
    """The default: the database, then the rules; with ``JAXATR_FIND=search`` it measures."""

    def __init__(self):
        self._measured: dict[tuple[Any, Device], Choice | None] = {}  # in this process

    def choose(self, operation: Operation, problem: Any, device: Device) -> Choice:
        mode = database.mode()
        asked = problem, device
        choice = None
        if mode in ("db", "search"):
            choice = database.lookup(operation, problem, device)
        measured = mode in ("search", "enforce") and device.kind and _has_a_size(problem)
        if choice is None and measured:
            if asked not in self._measured:
                with jax.ensure_compile_time_eval():  # outside of the program that is being traced
                    self._measured[asked] = found_choice(problem)
            choice = self._measured[asked]
        return operation.heuristic(problem, device) if choice is None else choice


class Choices:
    """Choices that were made before, by the key of their problem; the rules for other problems.

    The database is not asked: what is computed depends on the record alone.
    """

    def __init__(self, mapping: Mapping[str, Choice]):
        """Takes the key of each problem and its choice."""
        self._mapping = dict(mapping)
        self._frozen = frozenset(self._mapping.items())
        self._hash = hash(self._frozen)

    def choose(self, operation: Operation, problem: Any, device: Device) -> Choice:
        """Returns the recorded choice, else that of the rules.

        Raises:
          ValueError: the recorded algorithm cannot be used (any more).
        """
        choice = self._mapping.get(problem.key)
        if choice is None:
            return operation.heuristic(problem, device)
        if why := operation.refusal(problem, choice, device):
            raise ValueError(f"the choice recorded for {problem.key} cannot be used: {why}")
        return choice

    def to_json(self) -> dict[str, Any]:
        """Returns the mapping that :func:`choices` takes, as JSON values."""
        return {key: choice.to_json() for key, choice in sorted(self._mapping.items())}

    def __eq__(self, other: object) -> bool:
        """Says whether the same is chosen."""
        return isinstance(other, Choices) and self._frozen == other._frozen

    def __hash__(self) -> int:
        """Agrees with equality."""
        return self._hash


class Collector:
    """Answers by the rules, and notes what it was asked.

    Attributes:
      problems: key to the operation, the canonical problem and the device, in order of asking.
    """

    def __init__(self):
        """Begins with no problems."""
        self.problems: dict[str, tuple[Operation, Any, Device]] = {}

    def choose(self, operation: Operation, problem: Any, device: Device) -> Choice:
        """Notes the problem and answers by the rules."""
        self.problems.setdefault(problem.key, (operation, problem, device))
        return operation.heuristic(problem, device)


def _has_a_size(problem: Any) -> bool:
    """Says whether a problem can be measured: one that is exported may leave the batch free."""
    return not any(map(jax.export.is_symbolic_dim, jax.tree.leaves(dict(vars(problem)))))


_IMMEDIATE = _Immediate()
_context = jax.make_user_context(_IMMEDIATE)


def current() -> Chooser:
    """Returns the decision in force in this thread."""
    return _context.value


@contextlib.contextmanager
def choices(mapping: Mapping[str, Any] | Choices) -> Iterator[Choices]:
    """Pins what ``"auto"`` is in everything that is traced inside.

    Args:
      mapping: the key of a problem to ``{"algorithm": name, "config": {}}`` or a
        :class:`~jaxatr.kernels.solver.Choice`. For problems that are not in it the rules decide;
        the database is not asked.

    Raises:
      ValueError: a value is no choice; later, a choice cannot be used for its problem.
    """
    if not isinstance(mapping, Choices):
        mapping = Choices({key: _choice(key, value) for key, value in mapping.items()})
    with _context(mapping):
        yield mapping


def _choice(key: str, value: Any) -> Choice:
    if isinstance(value, Choice):
        return value
    try:
        return choice_from_json(value)
    except ValueError as error:
        raise ValueError(f"choices: {key}: {error}") from None


@contextlib.contextmanager
def collected() -> Iterator[Collector]:
    """Collects the problems of everything that is lowered inside, each once."""
    collector = Collector()
    with _context(collector):
        yield collector


def freeze(
    lower: Callable[[], object],
    *,
    measure: bool = False,
    watch: Callable[[list[str]], Iterable[str]] = iter,
) -> Choices:
    """Returns a choice for each problem of a program: the database's, or a measured one.

    A problem that is not among them is left to the rules; :func:`jaxatr.kernels.choices` keeps to
    that. Where nothing is recorded for the device and nothing is to be measured, the program is
    not even lowered.

    Args:
      lower: lowers the program, compiled or not; ``jax.jit(f).lower`` with its arguments.
      measure: find what the database does not know, as ``JAXATR_FIND=search`` does; with
        ``JAXATR_FIND=enforce`` everything is measured.
      watch: goes through the keys of the problems that are measured, and may show how far it is.
    """
    mode = database.mode()
    measure = measure or mode in ("search", "enforce")
    if not measure and (mode == "none" or not database.known(of_platform(jax.default_backend()))):
        return Choices({})
    with collected() as collector:
        lower()
    chosen = {}
    if mode in ("db", "search"):
        asked = {key: database.lookup(*item) for key, item in collector.problems.items()}
        chosen = {key: choice for key, choice in asked.items() if choice is not None}
    if measure:
        for key in watch([key for key in collector.problems if key not in chosen]):
            if (choice := found_choice(collector.problems[key][1])) is not None:
                chosen[key] = choice
        program.cache_clear()  # a run needs none of the candidates again
    return Choices(chosen)
