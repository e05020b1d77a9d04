"""The constraint graph of MIOpen's section V.A: the sequences of operations that a solver accepts.

A sequence is a walk from ``start`` along edges, one per operation; each edge may have constraints
on the operation and the problem. A new fused kernel adds edges, not combinations.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from jaxatr.kernels.contrib.fusion.operations import (
    Activation,
    BatchNorm,
    Bias,
    Convolution,
    FusionProblem,
    Operation,
    Residual,
)


@dataclasses.dataclass(frozen=True)
class Constraint:
    """A condition on an operation and a problem.

    Attributes:
      text: the condition in words, for tables and messages.
      holds: ``(operation, problem) -> bool``, whether the condition is met.
    """

    text: str
    holds: Callable[..., bool]


Constraints = dict[type, tuple[Constraint, ...]]

# The order of the operations in a sequence. All but the first are optional.
ORDER = (Convolution, Bias, BatchNorm, Residual, Activation)


@dataclasses.dataclass(frozen=True)
class Edge:
    """A step of a walk: after ``source``, an operation of the type ``target``."""

    source: type | None
    target: type
    constraints: tuple[Constraint, ...]


def ordered_edges(first: Sequence[type], constraints: Constraints) -> tuple[Edge, ...]:
    """Returns the edges of a graph that allows operations in the order :data:`ORDER`.

    Args:
      first: the types of operations that a sequence may begin with.
      constraints: the constraints of each type of operation.
    """
    starts = [Edge(None, target, constraints.get(target, ())) for target in first]
    return (
        *starts,
        *(
            Edge(source, target, constraints.get(target, ()))
            for place, source in enumerate(ORDER)
            for target in ORDER[place + 1 :]
        ),
    )


def refusal(
    edges: Sequence[Edge], operations: Sequence[Operation], problem: FusionProblem
) -> str | None:
    """Returns why a graph does not accept a sequence, or None if it does."""
    if len(operations) < 2:
        return f"got {len(operations)} of the two or more operations that a fusion needs"
    here: type | None = None
    for operation in operations:
        edge = next((e for e in edges if e.source is here and e.target is type(operation)), None)
        if edge is None:
            before = "at the start" if here is None else f"after {here.__name__}"
            return f"{type(operation).__name__} is not possible {before}"
        for constraint in edge.constraints:
            if not constraint.holds(operation, problem):
                return f"{operation} needs {constraint.text}, for {problem}"
        here = type(operation)
    return None


def combinations(edges: Sequence[Edge]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields each accepted sequence, with one letter per operation, and its constraints."""

    def walk(here: type | None, combination: str, texts: tuple[str, ...]):
        if len(combination) > 1:
            yield combination, texts
        for edge in edges:
            if edge.source is here:
                more = tuple(f"{edge.target.__name__}: {c.text}" for c in edge.constraints)
                yield from walk(edge.target, combination + edge.target.letter, texts + more)

    yield from walk(None, "", ())
