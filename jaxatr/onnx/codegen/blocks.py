"""Folds repeated structure of a graph into blocks: one class with several instances."""

from collections.abc import Iterator, Mapping
from typing import Any

from jaxatr.onnx.codegen.bodies import VARYING, Body, Member, Row, takes_any
from jaxatr.onnx.codegen.repetition import Occurrence, Repetition, best
from jaxatr.onnx.codegen.steps import Constant, Local, Step, StepGraph, Weight


def fold(graph: StepGraph, *, named: bool = False) -> Body:
    """Converts a graph to a body whose repeated structure is folded into (nested) blocks.

    Args:
      graph: graph of a model.
      named: whether the names of weights are module paths; every block is then such a module.
    """
    rows = [Row([step]) for step in graph.steps]
    model = Body("", rows, [graph.inputs], [graph.outputs], named=named)
    bodies = [model]
    while (repetition := best(bodies)) is not None:
        bodies.append(_replace(repetition, f"block {len(bodies)}"))
    titles: dict[str, int] = {}
    for block in blocks_of(model):
        title = _title(block)
        titles[title] = titles.get(title, 0) + 1
        block.title = f"{title}{titles[title] if titles[title] > 1 else ''}"
    return model


def blocks_of(body: Body) -> Iterator[Body]:
    """Yields the blocks that a body uses, each once, with nested blocks before their users."""
    seen: set[int] = set()

    def visit(one: Body) -> Iterator[Body]:
        for row in one.rows:
            if row.steps[0].kind == "block" and id(row.steps[0].block.body) not in seen:
                seen.add(id(row.steps[0].block.body))
                yield from visit(row.steps[0].block.body)
                yield row.steps[0].block.body

    return visit(body)


def _replace(repetition: Repetition, function: str) -> Body:
    """Replaces every occurrence of a repetition by a block; returns the block's body."""
    length = repetition.occurrences[0].stop - repetition.occurrences[0].start
    named = repetition.occurrences[0].body.named
    block = Body(function, [Row([]) for _ in range(length)], [], [], named=named)
    replacements: list[tuple[Occurrence, Row]] = []
    for occurrence in repetition.occurrences:
        rows = occurrence.body.rows[occurrence.start : occurrence.stop]
        row = Row([])
        for instance in range(len(rows[0].steps)):
            steps = [one.steps[instance] for one in rows]
            row.steps.append(_instance(block, steps, repetition.output))
        replacements.append((occurrence, row))
    # From the back, so that the positions of the other occurrences stay valid.
    for occurrence, row in sorted(replacements, key=lambda pair: -pair[0].start):
        occurrence.body.rows[occurrence.start : occurrence.stop] = [row]
    return block


def _instance(block: Body, steps: list[Step], output: tuple[int, int]) -> Step:
    """Adds steps to a block as another instance; returns the step that calls it."""
    block.star = takes_any(steps[0])
    produced = {name for step in steps for name in step.targets}
    names: dict[str, None] = dict.fromkeys(
        operand.name
        for step in steps
        for operand in step.operands
        if isinstance(operand, Local) and operand.name not in produced
    )
    target = steps[output[0]].targets[output[1]]
    for row, step in zip(block.rows, steps, strict=True):
        row.steps.append(step)
    block.inputs.append(tuple(names))
    block.outputs.append((Local(target),))
    return Step(
        block.title,  # provisional until all blocks are found
        (target,),
        tuple(Local(name) for name in names),
        kind="block",
        trains=any(step.trains for step in steps),
        block=Member(block, len(block.inputs) - 1),
    )


def _title(block: Body) -> str:
    """Returns a class name that describes the computation of a block."""
    steps = [row.steps[0] for row in block.rows]
    functions = {step.function for step in steps}
    produced = {name for step in steps for name in step.targets}
    sums = [s for s in steps if s.function in ("ops.add", "ops.total")]
    joins = [s for s in steps if s.function == "ops.concat"]
    if "ops.softmax" in functions:
        return "AttentionBlock"
    if any(len(_computed(step)) > 1 for step in sums):
        return "ResidualBlock"
    if any(name not in produced for step in joins for name in _computed(step)):
        return "DenseLayer"
    return "Branches" if joins else "Block"


def _computed(step: Step) -> list[str]:
    return [operand.name for operand in step.operands if isinstance(operand, Local)]


def fields(body: Body, shapes: Mapping[str, tuple | None]) -> None:
    """Adds a field to each class for every setting that differs between its instances."""
    for block in [*blocks_of(body), body]:
        columns: dict[str, str] = {}
        for row in block.rows:
            _inherit(row)
            for setting, values in _differing(row, shapes):
                column = repr(values)
                if column not in columns:
                    name = _operand_name(row, setting) if isinstance(setting, int) else setting
                    count, columns[column] = 2, name
                    while columns[column] in block.fields:
                        columns[column], count = f"{name}_{count}", count + 1
                    block.fields[columns[column]] = values
                row.fields[setting] = columns[column]


def _inherit(row: Row) -> None:
    """Sets the options of steps that call a block to the values of the block's fields."""
    for step in row.steps:
        if step.kind == "block":
            member = step.block
            step.options = {k: v[member.index] for k, v in member.body.fields.items()}


def _operand_name(row: Row, position: int) -> str:
    step = row.steps[0]
    names = step.operator.operands if step.operator else ()
    return names[position] if position < len(names) else "operand"


def _differing(row: Row, shapes: Mapping) -> Iterator[tuple[Any, list[Any]]]:
    """Yields each setting or operand that differs between the instances, with its values."""
    for key in {key: None for step in row.steps for key in step.options}:
        values = [step.options.get(key, VARYING.get(key)) for step in row.steps]
        if len({repr(value) for value in values}) > 1:
            yield key, values
    for position, operand in enumerate(row.steps[0].operands):
        others = [step.operands[position] for step in row.steps if position < len(step.operands)]
        values = [o.value if isinstance(o, Constant) else None for o in others]
        if isinstance(operand, Constant) and len({value.tobytes() for value in values}) > 1:  # pyright: ignore[reportOptionalMemberAccess]
            yield position, [o._replace(name="") for o in others if isinstance(o, Constant)]
        sizes = [o.shape for o in others if isinstance(o, Weight)]
        if isinstance(operand, Weight) and len(set(sizes)) > 1:
            like = 1 - position
            if all(_by_channel(step, position, like, shapes) for step in row.steps):
                row.channels[position] = like
            else:
                yield position, sizes


def _by_channel(step: Step, position: int, like: int, shapes: Mapping) -> bool:
    """Returns whether a weight ``[c, 1, …]`` matches the channels of a value ``[b, c, …]``."""
    if len(step.operands) != 2 or not isinstance(step.operands[like], Local):
        return False
    weight = step.operands[position].shape  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    shape = shapes.get(step.operands[like].name)  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    if shape is None or len(weight) != len(shape) - 1:
        return False
    return weight[0] == shape[1] and all(size == 1 for size in weight[1:])
