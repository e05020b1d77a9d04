"""The search for what repeats: windows of steps that compute alike."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxatr.onnx.codegen.bodies import VARYING, Body, last_uses, module_of, takes_any, used
from jaxatr.onnx.codegen.steps import Local, Operand, Step, Weight

LONGEST = 160
"""Steps of a block."""

SHORTEST = 4
SAVED = 8
"""Fewest steps that a block must spare the reader."""

OPEN = 0.6
"""The worth of a block whose operands are used behind it too: a whole residual block is better."""

WIDEST = 3
"""Values that a block may be applied to, unless it takes any number."""


JOINING = 8
"""Elements up to which a constant may differ from block to block."""


class Occurrence(NamedTuple):
    """Where a pattern occurs: the body, its first row and the row behind it."""

    body: Body
    start: int
    stop: int


class Repetition(NamedTuple):
    """A pattern.

    Attributes:
      occurrences: where it occurs; none overlaps another.
      output: row, from the start, and target of what it returns.
    """

    occurrences: list[Occurrence]
    output: tuple[int, int]


def best(bodies: list[Body]) -> Repetition | None:
    """Returns the pattern that spares most, or None."""
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
        # A window that occurs once does not occur twice when it is longer.
        groups = {key: found for key, found in groups.items() if len(found) > 1}
        windows = [window for found in groups.values() for window in found]
        if not windows:
            break
        for found in groups.values():
            if length < SHORTEST or (len(found) - 1) * length < max(SAVED, highest[0]):
                continue
            score, pattern = _rated(found, last)
            if score > highest:
                highest, chosen = score, pattern
    return chosen


def _rated(
    found: list["_Window"], last: Mapping[int, dict[str, int]]
) -> tuple[Any, Repetition | None]:
    """Returns the worth of a pattern, and the pattern; nothing where it can be no block."""
    nothing = (0.0, 0, 0), None
    if len(found[0].modules) == 1:
        return nothing  # a layer that would lose its name
    length, operands = found[0].stop - found[0].start, len(found[0].outside)
    if _twice([sketch.function for sketch in found[0].sketches[found[0].start : found[0].stop]]):
        return nothing
    occurrences = [Occurrence(one.body, one.start, one.stop) for one in found]
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
    """The traits of a step that have to be alike in two windows.

    Attributes:
      function: its function, or its class.
      fixed: a hash of everything but the values that it is applied to.
      values: names of those, None for other operands.
      target: name of its result.
      fits: whether a block may hold it.
      takes_any: whether it joins any number of values.
      is_block: whether it is a block itself.
      module: the path of its module, where names are such paths and it has weights.
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
    """Rows from one on, which grow by one row at a time, and the key of what they compute."""

    def __init__(self, body: Body, sketches: list[_Sketch], start: int):
        self.body, self.sketches, self.start, self.stop = body, sketches, start, start
        self.produced: dict[str, int] = {}
        self.outside: dict[str, int] = {}
        self.star = False
        self.parent: tuple[str, ...] | None = None
        self.modules: set[tuple[str, ...]] = set()
        self.key: Any = None

    def grow(self) -> bool:
        """Takes the next row in; returns whether the window can be a block with it."""
        if self.stop == len(self.sketches):
            return False
        sketch = self.sketches[self.stop]
        if not sketch.fits:
            return False
        if not self._takes_module(sketch):
            return False
        if sketch.is_block and self.stop > self.start:
            if self.sketches[self.stop - 1].function == sketch.function:
                return False  # blocks in a row are a loop, which is to stay whole
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
        """Returns whether a step is of the module that the window's first layer is in."""
        if sketch.module is None:
            return True
        if self.parent is None:
            self.parent = sketch.module[:-1]
        self.modules.add(sketch.module)
        return sketch.module[: len(self.parent)] == self.parent

    def _within(self, sketch: _Sketch) -> tuple[str, ...] | None:
        """Returns a step's path in that module."""
        if sketch.module is None or self.parent is None:
            return None
        return sketch.module[len(self.parent) :]


def _twice(functions: list[str]) -> bool:
    """Returns whether a window is a shorter one several times, perhaps the last time not whole."""
    periods = range(1, len(functions) // 2 + 1)
    return any(functions[period:] == functions[:-period] for period in periods)


def _cuts(body: Body, start: int, stop: int) -> bool:
    """Returns whether a window begins or ends amid blocks in a row."""

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
    """Returns the traits that have to be alike of an operand that was not computed."""
    if operand is None or isinstance(operand, Local):
        return None
    if isinstance(operand, Weight):
        return operand.collection, operand.dtype, len(operand.shape)
    value = operand.value
    same = (value.tobytes() if value.dtype != object else repr(value.tolist()),)
    return value.dtype.name, value.shape, operand.static, same * (value.size > JOINING)


def _apart(occurrences: list[Occurrence]) -> list[Occurrence]:
    """Returns as many occurrences as do not overlap, from the front."""
    chosen: list[Occurrence] = []
    for occurrence in occurrences:
        if chosen and chosen[-1].body is occurrence.body and chosen[-1].stop > occurrence.start:
            continue
        chosen.append(occurrence)
    return chosen


def _output(occurrence: Occurrence, last: dict[str, int]) -> tuple[int, int] | None:
    """Returns the one value of a window that is used behind it, or None."""
    found = [
        (index - occurrence.start, position)
        for index in range(occurrence.start, occurrence.stop)
        for position, name in enumerate(occurrence.body.rows[index].steps[0].targets)
        if last.get(name, -1) >= occurrence.stop
    ]
    return found[0] if len(found) == 1 else None


def _is_closed(occurrence: Occurrence, last: Mapping[str, int]) -> bool:
    """Returns whether nothing that a window reads is used behind it, or it reads any number."""
    rows = occurrence.body.rows[occurrence.start : occurrence.stop]
    return takes_any(rows[0].steps[0]) or all(
        last[name] < occurrence.stop for row in rows for name in used(row.steps[0]) if name
    )
