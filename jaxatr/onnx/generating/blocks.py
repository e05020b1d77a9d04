"""What repeats in a graph, found by its structure: each becomes one class, made several times."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jaxatr.onnx.generating.steps import Constant, Graph, Operand, Step, Value, Weight

LONGEST = 160
"""Steps of a block."""

SHORTEST = 4
SAVED = 8
"""Fewest steps that a block must spare the reader."""

OPEN = 0.6
"""What a block is worth whose operands are used behind it too: a whole residual block is better."""

WIDEST = 3
"""Values that a block may be applied to, unless it takes any number."""

VARYING = {"features": None, "strides": None, "group": 1, "hidden_size": None}
"""Settings by which blocks of one class may differ, with their defaults."""

JOINING = 8
"""Elements up to which a constant may differ from block to block."""


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


class Place(NamedTuple):
    """Where a pattern occurs: the body, its first row and the row behind it."""

    body: Body
    start: int
    stop: int


class Found(NamedTuple):
    """A pattern.

    Attributes:
      places: where it occurs; none overlaps another.
      output: row, from the start, and target of what it returns.
    """

    places: list[Place]
    output: tuple[int, int]


def fold(graph: Graph) -> Body:
    """Returns a graph with everything that repeats made to blocks, in blocks where they repeat."""
    model = Body("", [Row([step]) for step in graph.steps], [graph.inputs], [graph.outputs])
    bodies = [model]
    while (found := _best(bodies)) is not None:
        bodies.append(_replace(found, f"block {len(bodies)}"))
    titles: dict[str, int] = {}
    for block in blocks_of(model):
        title = _title(block)
        titles[title] = titles.get(title, 0) + 1
        block.title = f"{title}{titles[title] if titles[title] > 1 else ''}"
    return model


def blocks_of(body: Body) -> Iterator[Body]:
    """Yields the classes that a body is made of, each once, those first that others are made of."""
    seen: set[int] = set()

    def visit(one: Body) -> Iterator[Body]:
        for row in one.rows:
            if row.steps[0].kind == "block" and id(row.steps[0].block.body) not in seen:
                seen.add(id(row.steps[0].block.body))
                yield from visit(row.steps[0].block.body)
                yield row.steps[0].block.body

    return visit(body)


def _best(bodies: list[Body]) -> Found | None:
    """Returns the pattern that spares most, or None."""
    last = {id(body): last_uses(body) for body in bodies}
    best, chosen = (0.0, 0, 0), None
    windows: list[_Window] = []
    for body in bodies:
        sketches = [_Sketch(row.steps[0]) for row in body.rows]
        windows += [_Window(body, sketches, start) for start in range(len(sketches))]
    for length in range(1, LONGEST + 1):
        groups: dict[Any, list[_Window]] = defaultdict(list)
        for window in windows:
            if window.grow():
                groups[window.key].append(window)
        # What occurs once does not occur twice when it is longer.
        groups = {key: found for key, found in groups.items() if len(found) > 1}
        windows = [window for found in groups.values() for window in found]
        if not windows:
            break
        for found in groups.values():
            if length < SHORTEST or (len(found) - 1) * length < max(SAVED, best[0]):
                continue
            score, pattern = _rated(found, last)
            if score > best:
                best, chosen = score, pattern
    return chosen


def _rated(found: list["_Window"], last: Mapping[int, dict[str, int]]) -> tuple[Any, Found | None]:
    """Returns what a pattern is worth, and the pattern; nothing where it can be no block."""
    nothing = (0.0, 0, 0), None
    length, operands = found[0].stop - found[0].start, len(found[0].outside)
    if _twice([sketch.function for sketch in found[0].sketches[found[0].start : found[0].stop]]):
        return nothing
    places = [Place(one.body, one.start, one.stop) for one in found]
    apart = _apart([place for place in places if not _cuts(*place)])
    saved = float((len(apart) - 1) * length - len(apart) * max(0, operands - 1))
    if saved < SAVED:
        return nothing
    outputs = {_output(place, last[id(place.body)]) for place in apart}
    if len(outputs) > 1 or None in outputs:
        return nothing
    closed = sum(_is_closed(place, last[id(place.body)]) for place in apart)
    saved *= 1.0 if 2 * closed >= len(apart) else OPEN
    if saved < SAVED:
        return nothing
    begins = apart[0].body.rows[apart[0].start].steps[0].kind != "operator"
    return (saved, int(begins), -apart[0].start), Found(apart, outputs.pop() or (0, 0))


class _Sketch:
    """What has to be alike of a step in two windows.

    Attributes:
      function: its function, or its class.
      fixed: a hash of everything but the values that it is applied to.
      values: names of those, None for other operands.
      target: name of its result.
      fits: whether a block may hold it.
      takes_any: whether it joins any number of values.
      is_block: whether it is a block itself.
    """

    def __init__(self, step: Step):
        self.function = step.function
        others = tuple(None if isinstance(o, Value) else _token(o) for o in step.operands)
        self.fixed = hash((step.function, step.kind, step.results, _settings(step)))
        self.others = hash(others)
        self.values = tuple(o.name if isinstance(o, Value) else None for o in step.operands)
        self.target = step.targets[0] if step.targets else ""
        fetched = step.kind in ("weight", "key")
        self.fits = not fetched and not step.subgraphs and len(step.targets) == 1
        self.takes_any = bool(step.operands) and _takes_any(step)
        self.is_block = step.kind == "block"


class _Window:
    """Rows from one on, which grow by one row at a time, and the key of what they compute."""

    def __init__(self, body: Body, sketches: list[_Sketch], start: int):
        self.body, self.sketches, self.start, self.stop = body, sketches, start, start
        self.produced: dict[str, int] = {}
        self.outside: dict[str, int] = {}
        self.star = False
        self.key: Any = None

    def grow(self) -> bool:
        """Takes the next row in; returns whether the window can be a block with it."""
        if self.stop == len(self.sketches):
            return False
        sketch = self.sketches[self.stop]
        if not sketch.fits:
            return False
        if sketch.is_block and self.stop > self.start:
            if self.sketches[self.stop - 1].function == sketch.function:
                return False  # blocks in a row are a loop, which is to stay whole
        if self.stop == self.start and sketch.takes_any:
            self.star = True
            self.key = hash((sketch.fixed, "*"))
        else:
            before, tokens = len(self.outside), []
            for name in sketch.values:
                if name is None:
                    tokens.append(None)
                elif name in self.produced:
                    tokens.append(-1 - self.produced[name])
                else:
                    tokens.append(self.outside.setdefault(name, len(self.outside)))
            if len(self.outside) > WIDEST or (self.star and len(self.outside) > before):
                return False
            self.key = hash((self.key, sketch.fixed, sketch.others, *tokens))
        self.produced[sketch.target] = self.stop - self.start
        self.stop += 1
        return True


def _twice(functions: list[str]) -> bool:
    """Returns whether a window is a shorter one, several times."""
    length = len(functions)
    periods = (p for p in range(1, length // 2 + 1) if length % p == 0)
    return any(functions[p:] == functions[:-p] for p in periods)


def _cuts(body: Body, start: int, stop: int) -> bool:
    """Returns whether a window begins or ends amid blocks in a row."""

    def alike(index: int) -> bool:
        if not 0 <= index < len(body.rows) - 1:
            return False
        one, two = body.rows[index].steps[0], body.rows[index + 1].steps[0]
        return one.kind == "block" and one.function == two.function

    return alike(start - 1) or alike(stop)


def _takes_any(step: Step) -> bool:
    """Returns whether a step joins any number of computed values."""
    joins = step.operator is not None and step.operator.variadic and not step.operator.operands
    names = {operand.name for operand in step.operands if isinstance(operand, Value)}
    return joins and len(names) == len(step.operands)


def _settings(step: Step) -> Any:
    options = tuple((k, repr(v)) for k, v in sorted(step.options.items()) if k not in VARYING)
    return options, tuple(sorted((k, w.dtype, w.collection) for k, w in step.weights.items()))


def _token(operand: Operand) -> Any:
    """Returns what has to be alike of an operand that was not computed."""
    if operand is None or isinstance(operand, Value):
        return None
    if isinstance(operand, Weight):
        return operand.collection, operand.dtype, len(operand.shape)
    value = operand.value
    same = (value.tobytes() if value.dtype != object else repr(value.tolist()),)
    return value.dtype.name, value.shape, operand.static, same * (value.size > JOINING)


def last_uses(body: Body) -> dict[str, int]:
    """Returns the row that uses each value last, in the first instance of a body."""
    found: dict[str, int] = {}
    for index, row in enumerate(body.rows):
        for operand in used(row.steps[0]):
            found[operand] = index
    for operand in body.outputs[0]:
        if isinstance(operand, Value):
            found[operand.name] = len(body.rows)
    return found


def used(step: Step) -> Iterator[str]:
    """Yields the names of values that a step reads, its subgraphs included."""
    for operand in (*step.operands, *step.options.values()):
        if isinstance(operand, Value):
            yield operand.name
    for graph in step.subgraphs.values():
        for inner in graph.steps:
            yield from used(inner)
        yield from (operand.name for operand in graph.outputs if isinstance(operand, Value))


def _apart(places: list[Place]) -> list[Place]:
    """Returns as many places as do not overlap, from the front."""
    chosen: list[Place] = []
    for place in places:
        if chosen and chosen[-1].body is place.body and chosen[-1].stop > place.start:
            continue
        chosen.append(place)
    return chosen


def _output(place: Place, last: dict[str, int]) -> tuple[int, int] | None:
    """Returns the one value of a window that is used behind it, or None."""
    found = [
        (index - place.start, position)
        for index in range(place.start, place.stop)
        for position, name in enumerate(place.body.rows[index].steps[0].targets)
        if last.get(name, -1) >= place.stop
    ]
    return found[0] if len(found) == 1 else None


def _is_closed(place: Place, last: Mapping[str, int]) -> bool:
    """Returns whether nothing that a window reads is used behind it, or it reads any number."""
    rows = place.body.rows[place.start : place.stop]
    return _takes_any(rows[0].steps[0]) or all(
        last[name] < place.stop for row in rows for name in used(row.steps[0]) if name
    )


def _replace(found: Found, function: str) -> Body:
    """Puts a block's rows in the place of every occurrence; returns the block's body."""
    length = found.places[0].stop - found.places[0].start
    block = Body(function, [Row([]) for _ in range(length)], [], [])
    # From the back, so that what is replaced moves no place that is still to come.
    made: list[tuple[Place, Row]] = []
    for place in found.places:
        rows = place.body.rows[place.start : place.stop]
        row = Row([])
        for instance in range(len(rows[0].steps)):
            steps = [one.steps[instance] for one in rows]
            row.steps.append(_instance(block, steps, found.output))
        made.append((place, row))
    for place, row in sorted(made, key=lambda pair: -pair[0].start):
        place.body.rows[place.start : place.stop] = [row]
    return block


def _instance(block: Body, steps: list[Step], output: tuple[int, int]) -> Step:
    """Adds steps to a block as one instance more; returns the step that stands for them."""
    block.star = _takes_any(steps[0])
    produced = {name for step in steps for name in step.targets}
    names: dict[str, None] = dict.fromkeys(
        operand.name
        for step in steps
        for operand in step.operands
        if isinstance(operand, Value) and operand.name not in produced
    )
    target = steps[output[0]].targets[output[1]]
    for row, step in zip(block.rows, steps, strict=True):
        row.steps.append(step)
    block.inputs.append(tuple(names))
    block.outputs.append((Value(target),))
    return Step(
        block.title,  # until all blocks are found
        (target,),
        tuple(Value(name) for name in names),
        kind="block",
        trains=any(step.trains for step in steps),
        block=Member(block, len(block.inputs) - 1),
    )


def _title(block: Body) -> str:
    """Returns the name of a class, by what it computes."""
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
    return [operand.name for operand in step.operands if isinstance(operand, Value)]


def fields(body: Body, shapes: Mapping[str, tuple | None]) -> None:
    """Finds by what the instances of each class differ, the innermost classes first.

    Args:
      body: the model.
      shapes: of the values in it, as far as they are known.
    """
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
    """Gives the steps of a block's row the values of the block's fields."""
    for step in row.steps:
        if step.kind == "block":
            member = step.block
            step.options = {k: v[member.index] for k, v in member.body.fields.items()}


def _operand_name(row: Row, position: int) -> str:
    step = row.steps[0]
    names = step.operator.operands if step.operator else ()
    return names[position] if position < len(names) else "operand"


def _differing(row: Row, shapes: Mapping) -> Iterator[tuple[Any, list[Any]]]:
    """Yields each setting, or operand, that is not the same in all instances, with its values."""
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
    """Returns whether a weight ``[c, 1, …]`` goes with a value ``[b, c, …]``."""
    if len(step.operands) != 2 or not isinstance(step.operands[like], Value):
        return False
    weight = step.operands[position].shape  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    shape = shapes.get(step.operands[like].name)  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    if shape is None or len(weight) != len(shape) - 1:
        return False
    return weight[0] == shape[1] and all(size == 1 for size in weight[1:])
