"""Classes to be: their statements, for all instances at once."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jaxatr.onnx.codegen.steps import Local, Operand, Step

VARYING = {"features": None, "strides": None, "group": 1, "hidden_size": None}
"""Settings by which blocks of one class may differ, with their defaults."""


@dataclass
class Row:
    """The same statement of several instances of a body.

    Attributes:
      steps: one for each instance.
      name: of the layer or block, or of the weight.
      fields: settings that differ, to the body's field; a number stands for an operand.
      channels: weights that have one number for each channel of another operand: their position to
        that operand's.
    """

    steps: list[Step]
    name: str = ""
    fields: dict[Any, str] = field(default_factory=dict)
    channels: dict[int, int] = field(default_factory=dict)


@dataclass
class Body:
    """A class: the whole model, or a block that is made several times.

    Attributes:
      title: of the class; empty for the model.
      rows: its statements.
      inputs: for each instance, the names of what it is applied to.
      outputs: for each instance, what it returns.
      star: whether it is applied to any number of values.
      fields: each a value for each instance.
    """

    title: str
    rows: list[Row]
    inputs: list[tuple[str, ...]]
    outputs: list[tuple[Operand, ...]]
    star: bool = False
    fields: dict[str, list[Any]] = field(default_factory=dict)


class Member(NamedTuple):
    """One instance of a body."""

    body: Body
    index: int


def last_uses(body: Body) -> dict[str, int]:
    """Returns the row that uses each value last, in the first instance of a body."""
    found: dict[str, int] = {}
    for index, row in enumerate(body.rows):
        for operand in used(row.steps[0]):
            found[operand] = index
    for operand in body.outputs[0]:
        if isinstance(operand, Local):
            found[operand.name] = len(body.rows)
    return found


def used(step: Step) -> Iterator[str]:
    """Yields the names of values that a step reads, its subgraphs included."""
    for operand in (*step.operands, *step.options.values()):
        if isinstance(operand, Local):
            yield operand.name
    for graph in step.subgraphs.values():
        for inner in graph.steps:
            yield from used(inner)
        yield from (operand.name for operand in graph.outputs if isinstance(operand, Local))


def takes_any(step: Step) -> bool:
    """Returns whether a step joins any number of computed values."""
    joins = step.operator is not None and step.operator.variadic and not step.operator.operands
    names = {operand.name for operand in step.operands if isinstance(operand, Local)}
    return joins and len(names) == len(step.operands)
