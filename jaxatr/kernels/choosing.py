"""Chooses the algorithm behind ``"auto"``.

By default the choice comes from the database, or else from the heuristic. Inside :func:`choices` it
comes from a record; inside :func:`collected` every problem is noted. The current chooser is part of
jax's trace context: a function that was traced under one chooser is traced again under another.
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
    """Chooses algorithms. It must be hashable, because it is a parameter of jax's primitives."""

    def choose(self, operation: Operation, problem: Any, device: Device) -> Choice:
        """Returns the choice for a canonical problem on a device."""
        ...


class _Immediate:
    """The default chooser: the database, then a measurement if enabled, then the heuristic."""

    def __init__(self):
        self._measured: dict[tuple[Any, Device], Choice | None] = {}  # once per process

    def choose(self, operation: Operation, problem: Any, device: Device) -> Choice:
        mode = database.mode()
        asked = problem, device
        choice = None
        if mode in ("db", "search"):
            choice = database.lookup(operation, problem, device)
        if choice is None and mode in ("search", "enforce") and _measurable(problem, device):
            if asked not in self._measured:
                with jax.ensure_compile_time_eval():  # not as part of the program being traced
                    self._measured[asked] = found_choice(problem)
            choice = self._measured[asked]
        return operation.heuristic(problem, device) if choice is None else choice


class Choices:
    """Recorded choices by the key of their problem, and the heuristic for all other problems.

    The database is not read, so that a program depends on the record alone.
    """

    def __init__(self, mapping: Mapping[str, Choice]):
        self._mapping = dict(mapping)
        self._frozen = frozenset(self._mapping.items())
        self._hash = hash(self._frozen)

    def __contains__(self, key: str) -> bool:
        """Returns whether there is a choice for the key of a problem, canonical or not."""
        return key in self._mapping

    def choose(self, operation: Operation, problem: Any, device: Device) -> Choice:
        """Returns the recorded choice, or else the heuristic's.

        Raises:
          ValueError: the recorded algorithm cannot be used for the problem.
        """
        choice = self._mapping.get(problem.key)
        if choice is None:
            return operation.heuristic(problem, device)
        if why := operation.refusal(problem, choice, device):
            raise ValueError(f"the choice recorded for {problem.key} cannot be used: {why}")
        return choice

    @classmethod
    def from_json(cls, mapping: Mapping[str, Any]) -> "Choices":
        """Returns the choices that a mapping names, as :func:`choices` takes it.

        Raises:
          ValueError: a value is not a choice.
        """
        return cls({key: _choice(key, value) for key, value in mapping.items()})

    def to_json(self) -> dict[str, Any]:
        """Returns the mapping that :func:`choices` takes, as JSON values."""
        return {key: choice.to_json() for key, choice in sorted(self._mapping.items())}

    def __eq__(self, other: object) -> bool:
        """Returns whether both hold the same choices."""
        return isinstance(other, Choices) and self._frozen == other._frozen

    def __hash__(self) -> int:
        """Hashes the recorded choices."""
        return self._hash


class _Lookups(Choices):
    """Choices of the database, which are looked up while a program is lowered and then fixed.

    It equals only itself, since its choices are not known before. What was lowered with it need not
    be lowered again.
    """

    def __init__(self):
        super().__init__({})
        self._asked: set[str] | None = set()

    def choose(self, operation: Operation, problem: Any, device: Device) -> Choice:
        if self._asked is not None and problem.key not in self._asked:
            self._asked.add(problem.key)
            if (choice := database.lookup(operation, problem, device)) is not None:
                self._mapping[problem.key] = choice
        return super().choose(operation, problem, device)

    def close(self) -> None:
        """From now on, problems that were not looked up have the heuristic's choice."""
        self._asked = None

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


class Collector:
    """Chooses by the heuristic and collects every problem that it is asked about.

    Attributes:
      problems: the operation, the canonical problem and the device by the problem's key, in the
        order in which they were first seen.
    """

    def __init__(self):
        """Starts without problems."""
        self.problems: dict[str, tuple[Operation, Any, Device]] = {}

    def choose(self, operation: Operation, problem: Any, device: Device) -> Choice:
        """Collects the problem and returns the heuristic's choice."""
        self.problems.setdefault(problem.key, (operation, problem, device))
        return operation.heuristic(problem, device)


def _measurable(problem: Any, device: Device) -> bool:
    """Returns whether this process has the device and all sizes are known.

    ``jax.export`` may leave the batch symbolic.
    """
    sizes = jax.tree.leaves(dict(vars(problem)))
    return bool(device.kind) and not any(map(jax.export.is_symbolic_dim, sizes))


_IMMEDIATE = _Immediate()
_context = jax.make_user_context(_IMMEDIATE)


def current() -> Chooser:
    """Returns the chooser that is active in this thread."""
    return _context.value


@contextlib.contextmanager
def choices(mapping: Mapping[str, Any] | Choices) -> Iterator[Choices]:
    """Pins the algorithms that ``"auto"`` stands for in everything traced inside the context.

    Args:
      mapping: for the key of each problem, ``{"algorithm": name, "config": {}}`` or a
        :class:`~jaxatr.kernels.solver.Choice`. The heuristic decides for all other problems; the
        database is not read.

    Raises:
      ValueError: a value is not a choice. Tracing raises it too, if a choice cannot be used for
        its problem.
    """
    if not isinstance(mapping, Choices):
        mapping = Choices.from_json(mapping)
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
    """Collects the distinct problems of everything that is lowered inside the context."""
    collector = Collector()
    with _context(collector):
        yield collector


def freeze(
    lower: Callable[[], object],
    *,
    measure: bool = False,
    watch: Callable[[list[str]], Iterable[str]] = iter,
) -> Choices:
    """Looks up or measures a choice for each problem of a program.

    Problems without a choice are left to the heuristic, also under :func:`jaxatr.kernels.choices`.
    The program is not lowered if the database has nothing for the device and nothing is to be
    measured.

    Args:
      lower: lowers the program, such as ``jax.jit(f).lower`` with its arguments bound.
      measure: whether to measure the problems that are not in the database, as
        ``JAXATR_FIND=search`` does. ``JAXATR_FIND=enforce`` measures all of them. Problems with a
        symbolic batch, or of a device that this process does not have, are not measured.
      watch: wraps the list of keys to measure, for instance in a progress bar.

    Returns:
      The choices, to be passed to :func:`jaxatr.kernels.choices`. If nothing was to be measured,
      the program is not lowered again inside that context.
    """
    mode = database.mode()
    measure = measure or mode in ("search", "enforce")
    if not measure and (mode == "none" or not database.known(of_platform(jax.default_backend()))):
        return Choices({})
    if not measure:
        lookups = _Lookups()
        with _context(lookups):
            lower()
        lookups.close()
        return lookups
    with collected() as collector:
        lower()
    chosen = {}
    if mode in ("db", "search"):
        asked = {key: database.lookup(*item) for key, item in collector.problems.items()}
        chosen = {key: choice for key, choice in asked.items() if choice is not None}
    unknown = {
        key: problem
        for key, (_, problem, device) in collector.problems.items()
        if key not in chosen and _measurable(problem, device)
    }
    for key in watch(list(unknown)):
        if (choice := found_choice(unknown[key])) is not None:
            chosen[key] = choice
    program.cache_clear()  # the candidates are not needed again
    return Choices(chosen)
