"""Classes to be: their statements, for all instances at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jaxatr.onnx.codegen.steps import Local, Operand, Step, Weight

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
      named: whether the names of weights are paths of modules, which the code keeps.
    """

    title: str
    rows: list[Row]
    inputs: list[tuple[str, ...]]
    outputs: list[tuple[Operand, ...]]
    star: bool = False
    fields: dict[str, list[Any]] = field(default_factory=dict)
    named: bool = False


class Member(NamedTuple):
    """One instance of a body."""

    body: Body
    index: int


def module_of(step: Step) -> tuple[str, ...] | None:
    """Returns the path of a step's module by the paths of its weights; None without weights.

    The first part of a weight's path is its collection. The parameter that an operator is applied
    to is a place of its own.
    """
    if step.block is not None:
        found = [module_of(row.steps[step.block.index]) for row in step.block.body.rows]
    elif step.weights:
        found = [tuple(one.name.split("/")[1:-1]) for one in step.weights.values()]
    else:
        names = [one.name for one in step.operands if isinstance(one, Weight)]
        found = [tuple(name.split("/")[1:]) for name in names if "/" in name]
    return shared([one for one in found if one is not None]) if any(found) else None


def shared(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the parts that all paths begin with."""
    count = 0
    for column in zip(*paths):  # noqa: B905 — as far as the shortest goes
        if len(set(column)) > 1:
            break
        count += 1
    return paths[0][:count] if paths else ()


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
