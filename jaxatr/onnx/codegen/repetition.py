"""Searches for repeated structure: windows of steps with the same computation."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxatr.onnx.codegen.bodies import VARYING, Body, last_uses, module_of, takes_any, used
from jaxatr.onnx.codegen.steps import Local, Operand, Step, Weight

LONGEST = 160
"""Maximum number of steps in a block."""

SHORTEST = 4
"""Minimum number of steps in a block."""

SAVED = 8
"""Minimum number of steps that a block must save in the source."""

OPEN = 0.6
"""Factor on the score of a block whose inputs are used after it; favours full residual blocks."""

WIDEST = 3
"""Maximum number of inputs of a block, unless it takes any number."""

JOINING = 8
"""Constants of up to this many elements may differ between the instances of a block."""


class Occurrence(NamedTuple):
    """An occurrence of a pattern: the body, the first row and the row after the last."""

    body: Body
    start: int
    stop: int


class Repetition(NamedTuple):
    """A pattern with its occurrences.

    Attributes:
      occurrences: the occurrences, which do not overlap.
      output: row (counted from the start) and target of the returned value.
    """

    occurrences: list[Occurrence]
    output: tuple[int, int]


def best(bodies: list[Body]) -> Repetition | None:
    """Returns the pattern that saves the most steps, or None."""
    last = {id(body): last_uses(body) for body in bodies}
    highest, chosen = (0.0, 0, 0), None
    windows: list[_Window] = []
    for body in bodies:
        sketches = [_Sketch(row.steps[0], body.named) for row in body.rows]
        windows += [_Window(body, sketches, start) for start in range(len(sketches))]
    for length in range(1, LONGEST + 1):
        groups: dict[Any, list[_Window]] = defaultdict(list)
        for window in windows:
            if window.grow():
                groups[window.key].append(window)
        # A window that occurs only once cannot repeat when it grows.
        groups = {key: group for key, group in groups.items() if len(group) > 1}
        windows = [window for group in groups.values() for window in group]
        if not windows:
            break
        for group in groups.values():
            if length < SHORTEST or (len(group) - 1) * length < max(SAVED, highest[0]):
                continue
            score, pattern = _rated(group, last)
            if score > highest:
                highest, chosen = score, pattern
    return chosen


def _rated(
    group: list["_Window"], last: Mapping[int, dict[str, int]]
) -> tuple[Any, Repetition | None]:
    """Returns the score of a pattern, and the pattern, or None if it cannot be a block."""
    nothing = (0.0, 0, 0), None
    if len(group[0].modules) == 1:
        return nothing  # a single layer would lose its name
    length, operands = group[0].stop - group[0].start, len(group[0].outside)
    if _twice([sketch.function for sketch in group[0].sketches[group[0].start : group[0].stop]]):
        return nothing
    occurrences = [Occurrence(one.body, one.start, one.stop) for one in group]
    apart = _apart([occurrence for occurrence in occurrences if not _cuts(*occurrence)])
    saved = float((len(apart) - 1) * length - len(apart) * max(0, operands - 1))
    if saved < SAVED:
        return nothing
    outputs = {_output(occurrence, last[id(occurrence.body)]) for occurrence in apart}
    if len(outputs) > 1 or None in outputs:
        return nothing
    closed = sum(_is_closed(occurrence, last[id(occurrence.body)]) for occurrence in apart)
    saved *= 1.0 if 2 * closed >= len(apart) else OPEN
    if saved < SAVED:
        return nothing
    begins = apart[0].body.rows[apart[0].start].steps[0].kind != "operator"
    return (saved, int(begins), -apart[0].start), Repetition(apart, outputs.pop() or (0, 0))


class _Sketch:
    """The properties of a step that must agree in two windows.

    Attributes:
      function: its function or class.
      fixed: hash of its function, kind and settings.
      others: hash of its operands that are not computed values.
      values: names of its operands that are computed values; None for the others.
      target: name of its result.
      fits: whether a block may contain it.
      takes_any: whether it takes any number of values.
      is_block: whether it is itself a block.
      module: its module path, or None if names are not module paths or it has no weights.
    """

    def __init__(self, step: Step, named: bool):
        self.module = module_of(step) if named else None
        self.function = step.function
        others = tuple(None if isinstance(o, Local) else _token(o) for o in step.operands)
        self.fixed = hash((step.function, step.kind, step.results, _settings(step)))
        self.others = hash(others)
        self.values = tuple(o.name if isinstance(o, Local) else None for o in step.operands)
        self.target = step.targets[0] if step.targets else ""
        fetched = step.kind in ("weight", "key")
        self.fits = not fetched and not step.subgraphs and len(step.targets) == 1
        self.takes_any = bool(step.operands) and takes_any(step)
        self.is_block = step.kind == "block"


class _Window:
    """A window of rows that grows by one row at a time; its key identifies its computation."""

    def __init__(self, body: Body, sketches: list[_Sketch], start: int):
        self.body, self.sketches, self.start, self.stop = body, sketches, start, start
        self.produced: dict[str, int] = {}
        self.outside: dict[str, int] = {}
        self.star = False
        self.parent: tuple[str, ...] | None = None
        self.modules: set[tuple[str, ...]] = set()
        self.key: Any = None

    def grow(self) -> bool:
        """Adds the next row; returns whether the window can then be a block."""
        if self.stop == len(self.sketches):
            return False
        sketch = self.sketches[self.stop]
        if not sketch.fits:
            return False
        if not self._takes_module(sketch):
            return False
        if sketch.is_block and self.stop > self.start:
            if self.sketches[self.stop - 1].function == sketch.function:
                return False  # chained blocks form a loop, which must not be cut
        if self.stop == self.start and sketch.takes_any:
            self.star = True
            self.key = hash((sketch.fixed, "*", self._within(sketch)))
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
            self.key = hash((self.key, sketch.fixed, sketch.others, self._within(sketch), *tokens))
        self.produced[sketch.target] = self.stop - self.start
        self.stop += 1
        return True

    def _takes_module(self, sketch: _Sketch) -> bool:
        """Returns whether a step belongs to the parent module of the window's first layer."""
        if sketch.module is None:
            return True
        if self.parent is None:
            self.parent = sketch.module[:-1]
        self.modules.add(sketch.module)
        return sketch.module[: len(self.parent)] == self.parent

    def _within(self, sketch: _Sketch) -> tuple[str, ...] | None:
        """Returns a step's path relative to the window's parent module."""
        if sketch.module is None or self.parent is None:
            return None
        return sketch.module[len(self.parent) :]


def _twice(functions: list[str]) -> bool:
    """Returns whether a window is itself periodic, with a possibly incomplete last period."""
    periods = range(1, len(functions) // 2 + 1)
    return any(functions[period:] == functions[:-period] for period in periods)


def _cuts(body: Body, start: int, stop: int) -> bool:
    """Returns whether a window begins or ends inside a chain of blocks."""

    def alike(index: int) -> bool:
        if not 0 <= index < len(body.rows) - 1:
            return False
        one, two = body.rows[index].steps[0], body.rows[index + 1].steps[0]
        return one.kind == "block" and one.function == two.function

    return alike(start - 1) or alike(stop)


def _settings(step: Step) -> Any:
    options = tuple((k, repr(v)) for k, v in sorted(step.options.items()) if k not in VARYING)
    return options, tuple(sorted((k, w.dtype, w.collection) for k, w in step.weights.items()))


def _token(operand: Operand) -> Any:
    """Returns the properties of a weight or constant operand that must agree in two windows."""
    if operand is None or isinstance(operand, Local):
        return None
    if isinstance(operand, Weight):
        return operand.collection, operand.dtype, len(operand.shape)
    value = operand.value
    same = (value.tobytes() if value.dtype != object else repr(value.tolist()),)
    return value.dtype.name, value.shape, operand.static, same * (value.size > JOINING)


def _apart(occurrences: list[Occurrence]) -> list[Occurrence]:
    """Returns occurrences that do not overlap, chosen from the front."""
    chosen: list[Occurrence] = []
    for occurrence in occurrences:
        if chosen and chosen[-1].body is occurrence.body and chosen[-1].stop > occurrence.start:
            continue
        chosen.append(occurrence)
    return chosen


def _output(occurrence: Occurrence, last: dict[str, int]) -> tuple[int, int] | None:
    """Returns row and target of the value used after a window, or None unless exactly one is."""
    outputs = [
        (index - occurrence.start, position)
        for index in range(occurrence.start, occurrence.stop)
        for position, name in enumerate(occurrence.body.rows[index].steps[0].targets)
        if last.get(name, -1) >= occurrence.stop
    ]
    return outputs[0] if len(outputs) == 1 else None


def _is_closed(occurrence: Occurrence, last: Mapping[str, int]) -> bool:
    """Returns whether nothing after a window reads its inputs, or it takes any number of them."""
    rows = occurrence.body.rows[occurrence.start : occurrence.stop]
    return takes_any(rows[0].steps[0]) or all(
        last[name] < occurrence.stop for row in rows for name in used(row.steps[0]) if name
    )
