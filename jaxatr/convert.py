"""Takes models out as ONNX files.

python -m jaxatr.convert export --workdir=DIR --out=model.onnx [--layout=NHWC|NCHW]
"""

from collections.abc import Callable, Sequence

from absl import flags

from jaxatr import command
from jaxatr.resolve import nearest


def define_flags() -> None:
    """Defines the command's flags; only the command itself does, so that it can be imported."""
    flags.DEFINE_string("workdir", None, "export: the run's folder.")
    flags.DEFINE_string("checkpoint", "latest", "export: 'latest', 'best' or a step.")
    flags.DEFINE_enum("layout", "NHWC", ["NHWC", "NCHW"], "export: of the images.")
    flags.DEFINE_integer("opset", None, "export: version of ONNX's operators; default: 18.", 18)
    flags.DEFINE_string("out", None, "The file to write.")


def main(arguments: Sequence[str]) -> None:
    """Runs the sub-command that is named first."""
    name, *rest = arguments or [""]
    if name not in _COMMANDS:
        raise ValueError(
            f"got {name!r}, wanted one of {', '.join(_COMMANDS)}{nearest(name, _COMMANDS)}: "
            "python -m jaxatr.convert export --workdir=DIR --out=model.onnx"
        )
    _COMMANDS[name](rest)


def _export(arguments: Sequence[str]) -> None:
    from jaxatr.runs.export import export_run  # the extra is needed from here on only

    if arguments:
        raise ValueError(f"export takes flags alone, got {list(arguments)}")
    values = flags.FLAGS
    given = {"checkpoint": command.checkpoint(values.checkpoint), "layout": values.layout}
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


_COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {"export": _export}


if __name__ == "__main__":
    command.run(main, define_flags)
