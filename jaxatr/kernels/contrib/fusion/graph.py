"""The constraint graph of section V.A: which sequences of operations a solver takes.

A sequence is a walk from ``start`` over edges, one per operation; each edge may have constraints on
the operation and the problem. A new fused kernel adds edges, not combinations.
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
    """A condition on an operation, in words and as a test.

    Attributes:
      text: the words, as a table shows them.
      holds: ``(operation, problem) -> bool``.
    """

    text: str
    holds: Callable[..., bool]


Constraints = dict[type, tuple[Constraint, ...]]

# What may follow what: the operations stand in this order, each but the first at will.
ORDER = (Convolution, Bias, BatchNorm, Residual, Activation)


@dataclasses.dataclass(frozen=True)
class Edge:
    """A step of a walk: after ``source``, an operation of the type ``target``."""

    source: type | None
    target: type
    constraints: tuple[Constraint, ...]


def ordered_edges(first: Sequence[type], constraints: Constraints) -> tuple[Edge, ...]:
    """Returns the edges of a graph whose operations stand in the usual order.

    Args:
      first: the operations that a sequence may begin with.
      constraints: of each operation.
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
    """Walks the graph; returns why it cannot go on, or None where it arrives."""
    if len(operations) < 2:
        return f"{len(operations)} operation is nothing to fuse"
    here: type | None = None
    for operation in operations:
        edge = next((e for e in edges if e.source is here and e.target is type(operation)), None)
        if edge is None:
            before = "at the start" if here is None else f"after {here.__name__}"
            return f"no {type(operation).__name__} {before}"
        for constraint in edge.constraints:
            if not constraint.holds(operation, problem):
                return f"{operation} needs {constraint.text}, for {problem}"
        here = type(operation)
    return None


def combinations(edges: Sequence[Edge]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields each sequence of at least two operations by a letter each, and its constraints."""

    def walk(here: type | None, combination: str, texts: tuple[str, ...]):
        if len(combination) > 1:
            yield combination, texts
        for edge in edges:
            if edge.source is here:
                more = tuple(f"{edge.target.__name__}: {c.text}" for c in edge.constraints)
                yield from walk(edge.target, combination + edge.target.letter, texts + more)

    yield from walk(None, "", ())
