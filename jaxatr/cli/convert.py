"""Takes models in from ONNX files, and out as ONNX files.

jaxatr convert inspect model.onnx [--json]
jaxatr convert operators
jaxatr convert import model.onnx --out=DIR
jaxatr convert export --workdir=DIR --out=model.onnx [--layout=NHWC|NCHW] [--batch=N]
               [--score=NAME|none]
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import flags

from jaxatr.cli import inputs
from jaxatr.resolve import nearest


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_bool("json", False, "inspect: print JSON in place of the table.")
    flags.DEFINE_string("workdir", None, "export: the run's folder.")
    flags.DEFINE_string("checkpoint", "latest", "export: 'latest', 'best' or a step.")
    flags.DEFINE_enum("layout", "NHWC", ["NHWC", "NCHW"], "export: of the images.")
    flags.DEFINE_integer("opset", None, "export: version of ONNX's operators; default: 18.", 18)
    flags.DEFINE_integer("batch", None, "export: chips at once; default: any number.", 1)
    flags.DEFINE_string(
        "score", None, "export: decide by this open-set score, or 'none'; default: the run's."
    )
    flags.DEFINE_string("out", None, "The file or folder to write.")


def main(arguments: Sequence[str]) -> int | None:
    """Runs the sub-command that is named first."""
    name, *rest = arguments or [""]
    if name not in _COMMANDS:
        got = f"got {name!r}" if name else "nothing was given"
        raise ValueError(
            f"{got}, wanted one of {', '.join(_COMMANDS)}{nearest(name, _COMMANDS)}: "
            "jaxatr convert inspect model.onnx"
        )
    return _COMMANDS[name](rest)


def _inspect(arguments: Sequence[str]) -> int:
    """Prints a model's nodes; 1 where an operator has no implementation."""
    from jaxatr.onnx import layers  # the extra is needed from here on only
    from jaxatr.onnx.reader.inspection import summary, table

    found = layers(_model(arguments))
    if flags.FLAGS.json:
        print(json.dumps([dataclasses.asdict(layer) for layer in found], default=str, indent=1))
    else:
        print(table(found))
        print(summary(found))
    return 0 if all(layer.supported for layer in found) else 1


def _operators(arguments: Sequence[str]) -> None:
    """Prints the operators that have an implementation."""
    from jaxatr.onnx.reader.inspection import operator_table

    if arguments:
        raise ValueError(f"operators takes nothing, got {list(arguments)}")
    print(operator_table())


def _import(arguments: Sequence[str]) -> None:
    """Writes a model as source code."""
    from jaxatr.onnx import generate

    path = generate(_model(arguments), _needed("out"))
    count = len(path.read_text(encoding="utf-8").splitlines())
    size = (path.parent / "weights.safetensors").stat().st_size
    print(f"{path}: {count} lines, {size / 1e6:.1f} MB of weights beside it")


def _model(arguments: Sequence[str]) -> Path:
    if len(arguments) != 1:
        raise ValueError(f"wanted one ONNX file, got {list(arguments)}")
    return Path(arguments[0])


def _export(arguments: Sequence[str]) -> None:
    from jaxatr.runs.export import export_run  # the extra is needed from here on only

    if arguments:
        raise ValueError(f"export takes flags alone, got {list(arguments)}")
    values = flags.FLAGS
    given = {"checkpoint": inputs.checkpoint(values.checkpoint), "layout": values.layout}
    given["batch"] = values.batch
    given |= inputs.given("score")
    if values.opset is not None:
        given["opset"] = values.opset
    out = _needed("out")
    model = export_run(_needed("workdir"), out, **given)
    weights = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    print(f"{out}: {len(model.graph.node)} nodes, {weights / 1e6:.1f} MB of weights")
    for kind, values in (("input", model.graph.input), ("output", model.graph.output)):
        for value in values:
            sizes = [size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim]
            print(f"  {kind} {value.name} {sizes}")


def _needed(name: str) -> str:
    value = flags.FLAGS[name].value
    if not value:
        raise ValueError(f"--{name} must be given")
    return value


_COMMANDS: dict[str, Callable[[Sequence[str]], int | None]] = {
    "inspect": _inspect,
    "operators": _operators,
    "import": _import,
    "export": _export,
}
