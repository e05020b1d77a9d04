"""Takes models in from ONNX files.

python -m jaxatr.convert inspect model.onnx [--json]
python -m jaxatr.convert import model.onnx --out=DIR
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import flags

from jaxatr import command
from jaxatr.resolve import nearest


def define_flags() -> None:
    """Defines the command's flags; only the command itself does, so that it can be imported."""
    flags.DEFINE_bool("json", False, "inspect: print JSON in place of the table.")
    flags.DEFINE_string("out", None, "The file or folder to write.")


def main(arguments: Sequence[str]) -> int | None:
    """Runs the sub-command that is named first."""
    name, *rest = arguments or [""]
    if name not in _COMMANDS:
        raise ValueError(
            f"got {name!r}, wanted one of {', '.join(_COMMANDS)}{nearest(name, _COMMANDS)}: "
            "python -m jaxatr.convert inspect model.onnx"
        )
    return _COMMANDS[name](rest)


def _inspect(arguments: Sequence[str]) -> int:
    """Prints a model's nodes; 1 where an operator has no implementation."""
    from jaxatr.onnx import layers  # the extra is needed from here on only
    from jaxatr.onnx.inspection import summary, table

    found = layers(_model(arguments))
    if flags.FLAGS.json:
        print(json.dumps([dataclasses.asdict(layer) for layer in found], default=str, indent=1))
    else:
        print(table(found))
        print(summary(found))
    return 0 if all(layer.supported for layer in found) else 1


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


def _needed(name: str) -> str:
    value = flags.FLAGS[name].value
    if not value:
        raise ValueError(f"--{name} must be given")
    return value


_COMMANDS: dict[str, Callable[[Sequence[str]], int | None]] = {
    "inspect": _inspect,
    "import": _import,
}


if __name__ == "__main__":
    command.run(main, define_flags)
