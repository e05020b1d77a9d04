"""Takes models in from ONNX files, and out as ONNX files.

jaxatr convert inspect model.onnx [--json]
jaxatr convert describe model.onnx [--json]
jaxatr convert operators
jaxatr convert import model.onnx --out=DIR
jaxatr convert export --workdir=DIR --out=model.onnx [--score=NAME|none]
               [--takes=images|chips] [--repeat=DIR ...] [--container]

export writes MODEL_CARD.md beside the file; with --container also what a
container is built of that serves it. --repeat names further runs of the same
configuration, for the spread of the figures.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from jaxatr.cli import inputs
from jaxatr.resolve import nearest


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_bool("json", False, "inspect, describe: print JSON in place of text.")
    flags.DEFINE_multi_string("workdir", [], "export: the run's folder.")
    flags.DEFINE_multi_string(
        "repeat",
        [],
        "export: a run that differs in its seed; for the card's spread. Several times.",
    )
    flags.DEFINE_string("checkpoint", "latest", "export: 'latest', 'best' or a step.")
    flags.DEFINE_enum(
        "takes",
        "images",
        ["images", "chips"],
        "export: images as they are recorded, or float32 chips of the trained size.",
    )
    flags.DEFINE_string("size", None, "export: ROWSxCOLUMNS of all images; default: any.")
    flags.DEFINE_integer("channels", None, "export: of the images, 1 or 3; default: the chips'.")
    flags.DEFINE_enum("layout", "NHWC", ["NHWC", "NCHW"], "export: of the images.")
    flags.DEFINE_integer("opset", None, "export: version of ONNX's operators; default: 18.", 18)
    flags.DEFINE_integer("batch", None, "export: chips at once; default: any number.", 1)
    flags.DEFINE_string(
        "score", None, "export: decide by this open-set score, or 'none'; default: the run's."
    )
    flags.DEFINE_string("source", None, "export: where the training data is now, for a fit.")
    flags.DEFINE_bool("card", True, "export: write MODEL_CARD.md beside the file.")
    flags.DEFINE_string("licence", "", "export: of the model, for its card.")
    flags.DEFINE_string("data_licence", "", "export: of the training data, for the card.")
    flags.DEFINE_string("contact", "", "export: who answers for the model, for its card.")
    flags.DEFINE_bool("container", False, "export: write a Dockerfile and its server too.")
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


def _describe(arguments: Sequence[str]) -> None:
    """Prints what a file says of itself."""
    from jaxatr.onnx.reader.description import describe, described

    found = describe(_model(arguments))
    print(json.dumps(found, indent=1, ensure_ascii=False) if flags.FLAGS.json else described(found))


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
    from jaxatr import reporting
    from jaxatr.onnx.reader.description import describe, described
    from jaxatr.runs import container
    from jaxatr.runs.export import export_run  # the extra is needed from here on only

    if arguments:
        raise ValueError(f"export takes flags alone, got {list(arguments)}")
    values = flags.FLAGS
    given: dict[str, Any] = {"checkpoint": inputs.checkpoint(values.checkpoint)}
    given |= {name: values[name].value for name in ("layout", "takes", "batch", "channels")}
    given |= inputs.given("score", "opset", "source")
    if values.size:
        given["size"] = _size(values.size)
    out = Path(_needed("out"))
    if len(values.workdir) > 1:
        raise ValueError(
            f"--workdir: got {len(values.workdir)} runs, and an ensemble is not one file: export "
            "them one by one; --repeat=DIR names a run for the card's spread"
        )
    (workdir,) = values.workdir or [_needed("workdir")]
    workdirs = [workdir, *values.repeat]
    if values.card:
        reporting.check_card(out.parent)
        reporting.check_repeats(workdirs)
    if values.container:
        container.check_container(out.parent)
    model = export_run(workdir, out, **given)
    sizes = {tensor.name: len(tensor.raw_data) for tensor in model.graph.initializer}
    deciding = sum(size for name, size in sizes.items() if name.startswith("decision/"))
    print(described(found := describe(out)))
    print(f"  weights: {sum(sizes.values()) / 1e6:.1f} MB, {deciding / 1e6:.1f} MB of the decision")
    written = []
    if values.card:
        told = found["metadata"]
        exported = reporting.Exported(
            out.name,
            told["step"],
            told.get("decides", ""),
            told,
            values.licence,
            values.data_licence,
            values.contact,
        )
        written.append(reporting.write_card(workdirs, out.parent, exported))
    if values.container:
        written += container.write_container(out)
    for path in written:
        print(path)


def _size(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)x(\d+)", text)
    if not found:
        raise ValueError(f"--size: got {text!r}, wanted ROWSxCOLUMNS, such as 480x640")
    return int(found[1]), int(found[2])


def _needed(name: str) -> str:
    value = flags.FLAGS[name].value
    if not value:
        raise ValueError(f"--{name} must be given")
    return value


_COMMANDS: dict[str, Callable[[Sequence[str]], int | None]] = {
    "inspect": _inspect,
    "describe": _describe,
    "operators": _operators,
    "import": _import,
    "export": _export,
}
