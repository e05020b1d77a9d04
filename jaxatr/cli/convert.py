"""Imports ONNX models as source code, and exports runs as ONNX files.

jaxatr convert inspect model.onnx [--json]
jaxatr convert describe model.onnx [--json]
jaxatr convert operators
jaxatr convert import model.onnx --out=DIR
jaxatr convert export --workdir=DIR --out=model.onnx [--score=NAME|none]
               [--takes=images|chips] [--repeat=DIR ...] [--container]

inspect lists a model's nodes; describe prints a file's inputs, outputs and
metadata; operators lists the supported operators; import writes a model as
Python source code; export writes a run as an ONNX file with MODEL_CARD.md
beside it, and with --container the files of a container that serves it.
--repeat names runs of the same configuration with other seeds, for the spread
of the card's figures.
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

# The sub-commands of the flags that are not those of export alone.
_TAKERS = {"json": ("inspect", "describe"), "out": ("import", "export")}


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_bool("json", False, "inspect, describe: print JSON instead of text.")
    flags.DEFINE_multi_string("workdir", [], "export: the run's folder.")
    flags.DEFINE_multi_string(
        "repeat",
        [],
        "export: a run with another seed, for the spread of the card's figures; repeatable.",
    )
    flags.DEFINE_string("checkpoint", "latest", "export: 'latest', 'best' or a step.")
    flags.DEFINE_enum(
        "takes",
        "images",
        ["images", "chips"],
        "export: the input: recorded images, or float32 chips of the trained size.",
    )
    flags.DEFINE_string("size", None, "export: fixed ROWSxCOLUMNS of the images; default: any.")
    flags.DEFINE_integer(
        "channels",
        None,
        "export: channels of the images, 1 or 3 where these are converted; default: as the chips.",
    )
    flags.DEFINE_enum("layout", "NHWC", ["NHWC", "NCHW"], "export: layout of the images.")
    flags.DEFINE_integer("opset", None, "export: ONNX operator set; default: 18.", 18)
    flags.DEFINE_integer("batch", None, "export: fixed batch size; default: any.", 1)
    flags.DEFINE_string(
        "score",
        None,
        "export: the open-set score that decides, or 'none' for the network alone; default: the "
        "run's.",
    )
    inputs.define_precision(
        "export: precision of the network; below float32 it needs the training data and "
        "onnxruntime.",
        ["float32", "float16", "int8"],
    )
    flags.DEFINE_string(
        "data_source",
        None,
        "export: present location of the training data, if a score must be fitted.",
    )
    flags.DEFINE_alias("source", "data_source")
    flags.DEFINE_bool("card", True, "export: write MODEL_CARD.md beside the file.")
    flags.DEFINE_string("licence", "", "export: licence of the model, for its card.")
    flags.DEFINE_string("data_licence", "", "export: licence of the training data, for the card.")
    flags.DEFINE_string("contact", "", "export: contact of the model's owner, for its card.")
    flags.DEFINE_bool("container", False, "export: also write a Dockerfile and a server.")
    flags.DEFINE_string("out", None, "import, export: the folder or file to write.")


def main(arguments: Sequence[str]) -> int | None:
    """Runs the sub-command named by the first argument."""
    name, *rest = arguments or [""]
    if name not in _COMMANDS:
        got = f"got {name!r}" if name else "no sub-command given"
        raise ValueError(
            f"{got}, wanted one of {', '.join(_COMMANDS)}{nearest(name, _COMMANDS)}: "
            "jaxatr convert inspect model.onnx"
        )
    _check_flags(name)
    return _COMMANDS[name](rest)


def _check_flags(name: str) -> None:
    """Checks that the flags are those of a sub-command.

    Raises:
      ValueError: one is a flag of other sub-commands only.
    """
    for flag in flags.FLAGS.get_flags_for_module(__name__):
        takers = _TAKERS.get(flag.name, ("export",))
        if flag.present and name not in takers:
            raise ValueError(f"--{flag.name} is a flag of {', '.join(takers)}, but not of {name}")


def _inspect(arguments: Sequence[str]) -> int:
    """Prints a model's nodes; returns 1 if an operator is not supported."""
    from jaxatr.onnx import layers  # needs the extra onnx
    from jaxatr.onnx.reader.inspection import summary, table

    listed = layers(_model(arguments))
    if flags.FLAGS.json:
        print(json.dumps([dataclasses.asdict(layer) for layer in listed], default=str, indent=1))
    else:
        print(table(listed))
        print(summary(listed))
    return 0 if all(layer.supported for layer in listed) else 1


def _describe(arguments: Sequence[str]) -> None:
    """Prints a file's inputs, outputs and metadata."""
    from jaxatr.onnx.reader.description import describe, described

    facts = describe(_model(arguments))
    print(json.dumps(facts, indent=1, ensure_ascii=False) if flags.FLAGS.json else described(facts))


def _operators(arguments: Sequence[str]) -> None:
    """Prints the supported operators."""
    from jaxatr.onnx.reader.inspection import operator_table

    if arguments:
        raise ValueError(f"operators takes no arguments, got {', '.join(arguments)}")
    print(operator_table())


def _import(arguments: Sequence[str]) -> None:
    """Writes a model as source code."""
    from jaxatr.onnx import generate

    path = generate(_model(arguments), _needed("out"))
    count = len(path.read_text(encoding="utf-8").splitlines())
    size = (path.parent / "weights.safetensors").stat().st_size
    print(f"{path}: {count} lines, {size / 1e6:.1f} MB of weights beside it")


def _model(arguments: Sequence[str]) -> Path:
    return Path(inputs.only(arguments, "one ONNX file"))


def _export(arguments: Sequence[str]) -> None:
    from jaxatr import reporting
    from jaxatr.onnx.reader.description import describe, described
    from jaxatr.runs import container
    from jaxatr.runs.export import export_run  # needs the extra onnx

    if arguments:
        raise ValueError(f"export takes only flags, got {', '.join(arguments)}")
    values = flags.FLAGS
    given: dict[str, Any] = {"checkpoint": inputs.checkpoint(values.checkpoint)}
    given |= {name: values[name].value for name in ("layout", "takes", "batch", "channels")}
    given |= inputs.given("score", "opset") | {"source": values.data_source}
    given |= inputs.given("precision")
    if values.size:
        given["size"] = _size(values.size)
    out = Path(_needed("out"))
    if out.suffix != ".onnx":
        raise ValueError(f"--out: got {out}, wanted the name of an ONNX file, ending in .onnx")
    if len(values.workdir) > 1:
        raise ValueError(
            f"--workdir: got {len(values.workdir)} runs, but an ensemble cannot be exported to one "
            "file: export the runs separately; --repeat=DIR is for the spread of the card's figures"
        )
    (workdir,) = values.workdir or [_needed("workdir")]
    workdirs = [workdir, *values.repeat]
    if values.card:
        reporting.check_card(out.parent, out.name)
        reporting.check_repeats(workdirs)
        reporting.check_evaluations(workdirs)
    if values.container:
        container.check_container(out.parent)
    inputs.say(f"exporting {workdir}")
    model = export_run(workdir, out, **given)
    sizes = {tensor.name: len(tensor.raw_data) for tensor in model.graph.initializer}
    deciding = sum(size for name, size in sizes.items() if name.startswith("decision/"))
    print(described(facts := describe(out)))
    print(f"  weights: {sum(sizes.values()) / 1e6:.1f} MB, {deciding / 1e6:.1f} MB of the decision")
    written = []
    if values.card:
        metadata = facts["metadata"]
        exported = reporting.Exported(
            out.name,
            metadata["step"],
            metadata.get("decides", ""),
            metadata,
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
    size = re.fullmatch(r"(\d+)x(\d+)", text)
    if not size:
        raise ValueError(f"--size: got {text!r}, wanted ROWSxCOLUMNS, such as 480x640")
    return int(size[1]), int(size[2])


def _needed(name: str) -> str:
    value = flags.FLAGS[name].value
    if not value:
        raise ValueError(f"--{name} is required")
    return value


_COMMANDS: dict[str, Callable[[Sequence[str]], int | None]] = {
    "inspect": _inspect,
    "describe": _describe,
    "operators": _operators,
    "import": _import,
    "export": _export,
}
