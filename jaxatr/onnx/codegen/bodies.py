"""Bodies of the generated classes: their statements, for all instances at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jaxatr.onnx.codegen.steps import Local, Operand, Step, Weight

VARYING = {"features": None, "strides": None, "group": 1, "hidden_size": None}
"""Settings that may differ between instances of a class, with their defaults."""


@dataclass
class Row:
    """One statement of a body, for all its instances.

    Attributes:
      steps: the step of each instance.
      name: name of the layer, block or weight.
      weight: name of the weights among the operands.
      fields: maps each setting that differs between the instances to a field of the body; an
        integer key is the position of an operand.
      channels: maps the position of each weight with one number per channel of another operand to
        the position of that operand.
    """

    steps: list[Step]
    name: str = ""
    weight: str = ""
    fields: dict[Any, str] = field(default_factory=dict)
    channels: dict[int, int] = field(default_factory=dict)


@dataclass
class Body:
    """The body of a class: the whole model, or a block with several instances.

    Attributes:
      title: name of the class; empty for the model.
      rows: the statements.
      inputs: names of the inputs of each instance.
      outputs: outputs of each instance.
      star: whether the block takes any number of inputs.
      fields: fields of the class, each with one value per instance.
      named: whether the names of weights are module paths, which the source code keeps.
    """

    title: str
    rows: list[Row]
    inputs: list[tuple[str, ...]]
    outputs: list[tuple[Operand, ...]]
    star: bool = False
    fields: dict[str, list[Any]] = field(default_factory=dict)
    named: bool = False


class Member(NamedTuple):
    """An instance of a body."""

    body: Body
    index: int


def module_of(step: Step) -> tuple[str, ...] | None:
    """Returns the module path of a step, taken from its weights, or None if it has none.

    The first part of a weight's path is its collection. A parameter that is an operand of an
    operator counts as a module.
    """
    if step.block is not None:
        paths = [module_of(row.steps[step.block.index]) for row in step.block.body.rows]
    elif step.weights:
        paths = [tuple(one.name.split("/")[1:-1]) for one in step.weights.values()]
    else:
        names = [one.name for one in step.operands if isinstance(one, Weight)]
        paths = [tuple(name.split("/")[1:]) for name in names if "/" in name]
    return shared([one for one in paths if one is not None]) if any(paths) else None


def shared(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the common prefix of paths."""
    count = 0
    for column in zip(*paths):  # noqa: B905 — stops at the shortest
        if len(set(column)) > 1:
            break
        count += 1
    return paths[0][:count] if paths else ()


def last_uses(body: Body) -> dict[str, int]:
    """Returns the last row that uses each value in the first instance of a body."""
    rows: dict[str, int] = {}
    for index, row in enumerate(body.rows):
        for operand in used(row.steps[0]):
            rows[operand] = index
    for operand in body.outputs[0]:
        if isinstance(operand, Local):
            rows[operand.name] = len(body.rows)
    return rows


def used(step: Step) -> Iterator[str]:
    """Yields the names of the values that a step reads, including those in its subgraphs."""
    for operand in (*step.operands, *step.options.values()):
        if isinstance(operand, Local):
            yield operand.name
    for graph in step.subgraphs.values():
        for inner in graph.steps:
            yield from used(inner)
        yield from (operand.name for operand in graph.outputs if isinstance(operand, Local))


def takes_any(step: Step) -> bool:
    """Returns whether a step, such as a concatenation, takes any number of computed values."""
    joins = step.operator is not None and step.operator.variadic and not step.operator.operands
    names = {operand.name for operand in step.operands if isinstance(operand, Local)}
    return joins and len(names) == len(step.operands)
