"""Writes the classes of a module, and the imports that they need."""

import re
from collections.abc import Sequence
from typing import Any

from jaxatr.onnx import nn as layers
from jaxatr.onnx.codegen import paths
from jaxatr.onnx.codegen.bodies import Body, last_uses
from jaxatr.onnx.codegen.names import Names, quoted
from jaxatr.onnx.codegen.printing import SHORT_NAMES, Printer, SourceFile, fetch, variable_name
from jaxatr.onnx.codegen.source import WIDTH, Expression, Group, call, lines, literal
from jaxatr.onnx.codegen.steps import Constant, Weight


def kinds(values: Sequence[Any]) -> str:
    """Returns the type annotation of a field with these values."""
    names = []
    for value in values:
        if value is None:
            name = "None"
        elif isinstance(value, Constant):
            name = "tuple[int, ...]" if value.static and value.value.ndim else "object"
        elif isinstance(value, tuple):
            name = "tuple[int, ...]"
        else:
            name = type(value).__name__ if isinstance(value, (int, str, float)) else "object"
        names += [] if name in names else [name]
    return " | ".join(sorted(names, key=lambda name: name == "None"))


def block_class(body: Body, module: SourceFile, where: str) -> list[str]:
    """Returns the lines of a block's class; ``where`` is its docstring."""
    printer = Printer(module, Names(body.fields), {})
    printer.is_model = False
    printer.names.taken |= module.names.taken
    printer.last = last_uses(body)
    inputs = body.inputs[0]
    if body.star:
        arguments, printer.lists[inputs] = ("*features",), "features"
        printer.names.take("features")
    else:
        for value in inputs:
            printer.assign(value, next(n for n in SHORT_NAMES if n not in printer.owners))
        arguments = tuple(printer.variables[value] for value in inputs)
    code = [f"class {body.title}(nn.Module):", f'    """{where}"""', ""]
    required = {k: v for k, v in body.fields.items() if None not in v}
    optional = {k: v for k, v in body.fields.items() if k not in required}
    code += [f"    {name}: {kinds(values)}" for name, values in required.items()]
    code += [f"    {name}: {kinds(values)} = None" for name, values in optional.items()]
    code += [""] * bool(body.fields)
    if any(step.trains for row in body.rows for step in row.steps[:1]):
        arguments = (*arguments, "train: bool = False")
    code += ["    @nn.compact", *lines("def ", call("__call__", "self", *arguments), 4, ":")]
    code += printer.statements(body.rows, 8, dict(paths.runs(body)))
    (output,) = body.outputs[0]
    return [*code, *lines("return ", printer.output(output), 8)]


def model_class(body: Body, module: SourceFile, title: str, inputs: Sequence[Any]) -> list[str]:
    """Returns the lines of the model's class; ``inputs`` are ``ValueInfo`` objects."""
    printer = Printer(module, Names(module.names.taken), {})
    printer.last = last_uses(body)
    facts: dict[str, Expression] = {}
    for info in inputs:
        name = printer.names.take(variable_name(info.name))
        printer.variables[info.name] = name  # has no owner, so it is not reused
        fact = None if info.dtype is None else (info.dtype, info.shape)
        facts[name] = literal(fact)
    code = ["class Model(nn.Module):", f'    """{title}"""', ""]
    code += lines("@", call("entry", **facts), 4) + ["    @nn.compact"]
    arguments = ("self", *facts, "train: bool = False")
    code += lines("def ", call("__call__", *arguments), 4, ":")
    code += printer.statements(body.rows, 8, dict(paths.runs(body)))
    results = []
    for position, operand in enumerate(body.outputs[0]):
        if isinstance(operand, Weight):
            name = quoted(paths.output_name(position))
            results.append(fetch(operand, name, literal(operand.shape), ""))
        else:
            results.append(printer.output(operand))
    result = results[0] if len(results) == 1 else Group("", tuple(results))
    return [*code, *lines("return ", result, 8)]


def imports(text: str) -> list[str]:
    """Returns the import statements that a file's text needs."""
    code = ["import jax.numpy as jnp"] if re.search(r"\bjnp\.", text) else []
    code += ["from flax import linen as nn"]
    if re.search(r"\bops\.", text):
        code.append("from jaxatr.onnx import ops")
    names = [name for name in layers.__all__ if re.search(rf"(?<![\w.]){name}\(", text)]
    names.sort(key=lambda name: (not name.isupper(), name[0].islower(), name))
    line = f"from jaxatr.onnx.nn import {', '.join(names)}"
    if len(line) > WIDTH:
        return [*code, *lines("from jaxatr.onnx.nn import ", Group("", tuple(names)), 0)]
    return [*code, line]
