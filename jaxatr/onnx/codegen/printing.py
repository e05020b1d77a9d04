"""Prints the statements of a body: one for each row, and a loop for chained blocks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxatr.onnx.codegen import paths
from jaxatr.onnx.codegen.bodies import Body, Row, last_uses
from jaxatr.onnx.codegen.names import Names, identifier, quoted
from jaxatr.onnx.codegen.recognition import POSITIONAL
from jaxatr.onnx.codegen.source import (
    WIDTH,
    Expression,
    Group,
    call,
    filled,
    lines,
    literal,
)
from jaxatr.onnx.codegen.steps import Constant, Local, Operand, Step, StepGraph, Weight

INLINE = 16
"""Arrays of up to this many elements are written where they are used."""

ORDER = (
    "hidden_size",
    "num_embeddings",
    "num_groups",
    "ratio",
    "features",
    "kernel_shape",
    "strides",
    "dilations",
    "pads",
    "auto_pad",
    "group",
)
"""Settings that are printed first, in this order."""

SHORT_NAMES = ("x", "y", "z", "u", "v", "w", "a", "b", "c", "d")

LONGEST = 20
"""Maximum number of characters of a value's name with several words."""

Shapes = Mapping[str, tuple[int | str | None, ...] | None]


class SourceFile:
    """The module-level statements of one file.

    Attributes:
      names: identifiers in use at module level.
      constants: statements that define long arrays, by name.
      operators: variables of the operator functions that are looked up, by registry key.
      shapes: shapes of values, if known.
    """

    def __init__(self, shapes: Shapes, classes: Sequence[str]):
        self.names = Names(classes)
        self.shapes = shapes
        self.constants: dict[str, list[str]] = {}
        self.constant_names: dict[str, str] = {}
        self.operators: dict[str, str] = {}

    def learn(self, step: Step) -> None:
        """Names the functions of a step's operators that are not in :mod:`jaxatr.onnx.ops`.

        This must happen before anything else is named.
        """
        for graph in step.subgraphs.values():
            for inner in graph.steps:
                self.learn(inner)
        public = step.operator is None or step.function.startswith("ops.")
        if not public and step.function not in self.operators:
            wanted = identifier(step.operator.name if step.operator else "", "operator").lower()
            self.operators[step.function] = self.names.take(wanted)

    def function(self, step: Step) -> str:
        """Returns the expression for an operator's function."""
        return self.operators.get(step.function, step.function)

    def constant(self, constant: Constant) -> str:
        """Returns the name of a long array, which is defined at module level."""
        if constant.name not in self.constant_names:
            name = self.names.take(identifier(constant.name, "constant").upper())
            self.constant_names[constant.name] = name
            self.constants[name] = filled(name, constant.value)
        return self.constant_names[constant.name]


class Printer:
    """Prints the statements of one function, for the first instance of its body.

    Attributes:
      module: the file.
      names: identifiers in use in the function.
      variables: the expression of each value.
      owners: the value that each variable of this function currently holds.
      last: the last row that uses each value.
      lists: variables of lists that gather values, by the names of the values.
      is_model: whether this is the ``__call__`` of the model.
    """

    def __init__(self, module: SourceFile, names: Names, variables: Mapping[str, str]):
        self.module = module
        self.names = names
        self.variables = dict(variables)
        self.owners: dict[str, str] = {}
        self.last: Mapping[str, int] = {}
        self.lists: dict[tuple[str, ...], str] = {}
        self.is_model = True

    def assign(self, value: str, variable: str) -> None:
        """Records that a variable holds a value."""
        self.variables[value] = variable
        self.owners[variable] = value

    def live(self, variable: str, index: int) -> bool:
        """Returns whether a variable's value is used after a row."""
        return variable in self.owners and self.last.get(self.owners[variable], -1) > index

    def target(self, step: Step, value: str, index: int, taken: set[str]) -> str:
        """Returns a variable for a value; reuses one that is no longer needed if possible."""
        if value not in self.last:
            return "_"  # unused
        reads = [o for o in step.operands if isinstance(o, Local)]
        candidates = [self.variables.get(operand.name, "") for operand in reads[:1]]
        candidates = [c for c in candidates if c in self.owners] + ["x"]
        for name in (*candidates, *SHORT_NAMES, variable_name(value)):
            usable = name in self.owners or self.names.free(name)
            if usable and name not in taken and not self.live(name, index):
                self.names.taken.add(name)
                return name
        return self.names.take(variable_name(value))

    def operand(self, operand: Operand, row: Row, position: int) -> Expression:
        """Returns the expression of an operand."""
        if operand is None:
            return "None"
        if isinstance(operand, Local):
            return self.variables[operand.name]
        if isinstance(operand, Weight):
            return self.weight(operand, row, position)
        if position in row.fields:
            return f"self.{row.fields[position]}"
        return self.constant(operand)

    def constant(self, constant: Constant) -> Expression:
        """Returns the expression of an array that is written in the source."""
        value = constant.value
        if constant.static and value.dtype == np.int64 and value.ndim < 2 and value.size:
            plain = value.tolist()
            return literal(tuple(plain) if value.ndim else plain)
        if constant.name and (value.size > INLINE or (value.size > 4 and value.ndim > 1)):
            return self.module.constant(constant)
        return literal(value)

    def weight(self, weight: Weight, row: Row, position: int) -> Expression:
        """Returns the expression that reads an array from the module's variables."""
        held = [i for i, o in enumerate(row.steps[0].operands) if isinstance(o, Weight)]
        name = quoted(paths.leaf_name(row.weight, held.index(position)))
        shape: Expression = literal(weight.shape)
        if position in row.channels:
            like = row.steps[0].operands[row.channels[position]]
            axis = f"{self.variables[like.name]}.shape[1]"  # pyright: ignore[reportOptionalMemberAccess]
            shape = Group("", (axis, *(["1"] * (len(weight.shape) - 1))))
        elif position in row.fields:
            shape = f"self.{row.fields[position]}"
        return fetch(weight, name, shape, row.steps[0].function)

    def arguments(self, row: Row) -> tuple[Expression, ...]:
        """Returns the expressions of a step's operands."""
        step = row.steps[0]
        listed = tuple(o.name for o in step.operands if isinstance(o, Local))
        if len(listed) == len(step.operands) and listed in self.lists:
            return (f"*{self.lists[listed]}",)
        return tuple(self.operand(o, row, i) for i, o in enumerate(step.operands))

    def options(self, row: Row) -> dict[str, Expression]:
        """Returns the expressions of a step's settings, except defaults."""
        options: dict[str, Expression] = {}
        step = row.steps[0]
        for key in {**step.options, **{k: 0 for k in row.fields if isinstance(k, str)}}:
            if key in row.fields:
                options[key] = f"self.{row.fields[key]}"
                continue
            value = step.options[key]
            if isinstance(value, Local):
                options[key] = self.variables[value.name]
            elif isinstance(value, Constant):
                options[key] = self.constant(value)
            elif not (step.kind == "block" and value is None):
                options[key] = literal(value)
        places = {key: ORDER.index(key) for key in options if key in ORDER}
        return dict(sorted(options.items(), key=lambda item: places.get(item[0], len(ORDER))))

    def expression(self, row: Row, name: Expression | None = None) -> Expression:
        """Returns the expression of a step; ``name`` overrides the name of its module."""
        step, applied = row.steps[0], self.arguments(row)
        options = self.options(row)
        if step.kind == "key":
            return "key(self)"
        if step.kind == "weight":
            return applied[0]
        if step.kind == "operator":
            if step.trains:
                options["training"] = "train"
            if step.draws:
                options["rng"] = "key(self)"
            expression = call(self.module.function(step), *applied, **options)
            return call("first", expression) if step.results == "first" else expression
        count = POSITIONAL.get(step.function, 0)
        positional = [options.pop(key) for key in list(options)[:count]]
        title = step.block.body.title if step.block else step.function
        expression = call(title, *positional, **options, name=name or quoted(row.name))
        if step.trains:
            star = bool(applied) and isinstance(applied[0], str) and applied[0].startswith("*")
            star = star or (step.kind == "block" and step.block.body.star)
            applied = (*applied, "train=train" if star else "train")
        return Group(expression, applied)

    def statements(self, rows: Sequence[Row], indent: int, loops: Mapping[int, int]) -> list[str]:
        """Returns the lines of rows; ``loops`` maps the start of a chain of blocks to its end."""
        code: list[str] = []
        index = 0
        while index < len(rows):
            stop = loops.get(index)
            if stop is not None and rows[index].steps[0].block.body.star:
                code += self.gathering(rows[index:stop], index, indent)
                index = stop
            elif stop is not None and self.chained(rows[index:stop], index):
                code += self.loop(rows[index:stop], indent)
                index = stop
            else:
                code += self.statement(rows[index], index, indent)
                index += 1
                if stop is not None and stop - index > 1:
                    loops = {**loops, index: stop}
        return code

    def chained(self, rows: Sequence[Row], index: int) -> bool:
        """Returns whether chained rows can share one variable: nothing reads its old values."""
        values = [row.steps[0].operands[0].name for row in rows]  # pyright: ignore[reportOptionalMemberAccess]
        alone = all(self.last.get(value) == index + i for i, value in enumerate(values))
        return alone and self.variables[values[0]] in self.owners

    def loop(self, rows: Sequence[Row], indent: int) -> list[str]:
        """Returns a loop over blocks, each of which takes the result of the previous one."""
        stem, start = paths.counted([row.name for row in rows])  # pyright: ignore[reportGeneralTypeIssues]
        variable = self.variables[rows[0].steps[0].operands[0].name]  # pyright: ignore[reportOptionalMemberAccess]
        expression = self.expression(rows[0], f'f"{stem}{{i}}"')
        self.assign(rows[-1].steps[0].targets[0], variable)
        comment = self.comment(rows[-1].steps[0])
        return [
            " " * indent + counting(start, len(rows)),
            *commented(lines(f"{variable} = ", expression, indent + 4), comment),
        ]

    def gathering(self, rows: Sequence[Row], index: int, indent: int) -> list[str]:
        """Returns a loop over blocks, each of which takes the results of all previous ones."""
        stem, start = paths.counted([row.name for row in rows])  # pyright: ignore[reportGeneralTypeIssues]
        values = [operand.name for operand in rows[0].steps[0].operands]  # pyright: ignore[reportOptionalMemberAccess]
        name = self.names.take("features")
        begun = Group("", tuple(self.variables[value] for value in values), "[]")
        code = lines(f"{name} = ", begun, indent)
        self.lists[tuple(values)] = name
        expression = self.expression(rows[0], f'f"{stem}{{i}}"')
        code.append(" " * indent + counting(start, len(rows)))
        code += lines("", call(f"{name}.append", expression), indent + 4)
        del self.lists[tuple(values)]
        values += [row.steps[0].targets[0] for row in rows]
        self.lists[tuple(values)] = name
        for position, value in enumerate(values):
            self.variables[value] = f"{name}[{position}]"
        return code

    def statement(self, row: Row, index: int, indent: int) -> list[str]:
        """Returns the lines of one row, preceded by its local functions."""
        step = row.steps[0]
        code: list[str] = []
        for key, graph in step.subgraphs.items():
            name = self.names.take(key)
            code += self.function(name, graph, indent)
            step.options[key] = Local(f"function {name}\0")  # cannot be the name of a value
            self.variables[f"function {name}\0"] = name
        expression = self.expression(row)
        taken: set[str] = set()
        targets = []
        for value in step.targets:
            targets.append(self.target(step, value, index, taken))
            taken.add(targets[-1])
        if step.results == "more":
            targets.append("*_")
        prefix = ", ".join(targets) + " = "
        if len(prefix) > WIDTH // 2 and step.results != "first":
            name = self.names.take("results")
            for position, value in enumerate(step.targets):
                self.variables[value] = f"{name}[{position}]"
            return [*code, *lines(f"{name} = ", expression, indent)]
        if step.results == "more" and len(targets) == 1:
            prefix = f"{targets[0]}, = "
        for value, name in zip(step.targets, targets, strict=False):
            if name != "_":
                self.assign(value, name)
        return [*code, *commented(lines(prefix, expression, indent), self.comment(step))]

    def function(self, name: str, graph: StepGraph, indent: int) -> list[str]:
        """Returns the lines of a local function, which can read the enclosing variables."""
        inner = Printer(self.module, Names(self.names.taken | set(self.owners)), self.variables)
        inner.is_model = False
        rows = [Row([step]) for step in graph.steps]
        inner.last = last_uses(Body("", rows, [graph.inputs], [graph.outputs]))
        arguments = []
        for value in graph.inputs:
            arguments.append(inner.names.take(variable_name(value)))
            inner.assign(value, arguments[-1])
        margin = " " * indent
        code = lines("def ", Group(name, tuple(arguments)), indent, ":")
        code += inner.statements(rows, indent + 4, {})
        results = Group("", tuple(inner.output(o) for o in graph.outputs))
        if not graph.outputs:
            return ["", *code, f"{margin}    return ()", ""]
        return ["", *code, *lines("return ", results, indent + 4), ""]

    def output(self, operand: Operand) -> Expression:
        """Returns the expression of a result."""
        if isinstance(operand, Local):
            return self.variables[operand.name]
        return "None" if operand is None else self.constant(operand)  # pyright: ignore[reportArgumentType]

    def comment(self, step: Step) -> str:
        """Returns the shape of a step's first result, or an empty string if it is unknown."""
        shape = self.module.shapes.get(step.targets[0]) if self.is_model else None
        if shape is None or all(dimension(size) == "?" for size in shape):
            return ""
        return shape_text(shape)


def variable_name(value: str) -> str:
    """Returns an identifier for a value, not in capitals, which denote long arrays.

    >>> variable_name("/encoder/layers.2/self_attn/Gather_4_output_0"), variable_name("X")
    ('self_attn_Gather_4', 'x')
    """
    parts = list(paths.words(value))
    if len(parts) > 2 and parts[-2] == "output":
        parts = parts[:-2]
    while len(parts) > 1 and (len("_".join(parts)) > LONGEST or parts[0].isdigit()):
        del parts[0]
    name = identifier("_".join(parts) or value, "x")
    return name.lower() if name.isupper() else name


def counting(start: int, count: int) -> str:
    """Returns the head of a loop."""
    return f"for i in range({f'{start}, ' if start else ''}{start + count}):"


def commented(code: list[str], comment: str) -> list[str]:
    """Returns lines with a comment after the last one, if there is room."""
    if not comment or len(code[-1]) + len(comment) + 4 > WIDTH:
        return code
    return [*code[:-1], f"{code[-1]}  # {comment}"]


def shape_text(shape: Sequence[Any]) -> str:
    """Returns the text of a shape, with symbols reduced to letters, digits and underscores.

    >>> shape_text(("N\\nimport os", 3, None))
    '[N_import_os, 3, ?]'
    """
    return f"[{', '.join(dimension(size) for size in shape)}]"


def dimension(size: Any) -> str:
    """Returns the text of one dimension of a shape."""
    if isinstance(size, int):
        return str(size)
    unnamed = not size or size.startswith("unk__")  # a placeholder of ONNX's inference
    return "?" if unnamed else identifier(size, "n")[:12]


def fetch(weight: Weight, name: str, shape: Expression, function: str) -> Expression:
    """Returns the expression that reads a weight, or creates it in ``init``."""
    dtype = quoted(weight.dtype)
    if weight.collection != "params":
        return call("held", "self", quoted(weight.collection), name, shape, dtype)
    initial = {"ops.add": "zeros", "ops.sub": "zeros", "ops.mul": "ones", "ops.div": "ones"}
    kind = f"nn.initializers.{initial.get(function, 'normal(0.02)')}"
    return call("self.param", name, kind, shape, dtype)
