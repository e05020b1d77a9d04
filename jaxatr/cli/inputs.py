"""Flags and arguments that several commands share; nothing heavy is imported for them."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from absl import flags

CHECKED = 20_000
"""Default limit on the number of images that a check reads."""

ENGINES = ("local", "ray")
"""Those of :mod:`jaxatr.batch`, which is slow to import."""

RUNTIMES = ("jax", "onednn", "onnxruntime", "openvino")
PRECISIONS = ("float32", "bfloat16", "float16", "int8")
"""The engines of :mod:`jaxatr.onnx.sessions`, which is slow to import."""

FORMER = ("source", "jsonl", "page")
"""Flags of version 0.2 that still work under their earlier names; ``--help`` leaves them out."""


def define_data(
    source: str = "Present location of the training data: its folder or archive.",
    folder: str = "Present folder of prepared data sets.",
    *,
    former: bool = True,
) -> None:
    """Defines ``--data_source`` and ``--data_dir``, by which every command finds its data.

    Args:
      source: description of ``--data_source``.
      folder: description of ``--data_dir``.
      former: whether version 0.2 had the command's ``--data_source`` as ``--source``.
    """
    flags.DEFINE_string("data_source", None, source)
    if former:
        flags.DEFINE_alias("source", "data_source")
    flags.DEFINE_string("data_dir", None, folder)


def define_chips(meaning: str) -> None:
    """Defines ``--chips``, labelled chips that are not the run's data."""
    flags.DEFINE_string("chips", None, meaning)
    flags.DEFINE_alias("source", "chips")


def define_options() -> None:
    """Defines ``--option``, for options of a data set."""
    flags.DEFINE_multi_string(
        "option",
        [],
        "An option of the data set, NAME=VALUE, such as aspects=36 or ranges=[1000] (JSON) or "
        "files=_vis.png,_ir.png; repeatable.",
    )


def define_runtime(*, precision: bool = True) -> None:
    """Defines ``--runtime``, the engine of a run's network, and perhaps ``--precision``."""
    flags.DEFINE_enum(
        "runtime",
        RUNTIMES[0],
        RUNTIMES,
        "The engine that runs the network: jax; jax with oneDNN's kernels where they are faster "
        "(onednn); or another engine, with the extra of its name. Explanations always use jax.",
    )
    if precision:
        define_precision(
            "The precision of the network: bfloat16 with --runtime=jax or onednn, float16 and int8 "
            "with onnxruntime or openvino; float32 is that of the training.",
            PRECISIONS,
        )


def define_precision(what: str, names: Sequence[str]) -> None:
    """Defines ``--precision``.

    Args:
      what: its description.
      names: the precisions that the command takes.
    """
    flags.DEFINE_enum("precision", PRECISIONS[0], names, what)


def runtime() -> str:
    """Returns the engine with its precision, as ``load`` takes it."""
    name, precision = flags.FLAGS.runtime, flags.FLAGS.precision
    return name if precision == PRECISIONS[0] else f"{name}:{precision}"


def define_source_name() -> None:
    """Defines ``--source_name``."""
    flags.DEFINE_string(
        "source_name",
        "",
        "Where the inputs come from, such as a sensor, for the column `source` of the table; "
        "default: the folder, archive or table that is given.",
    )


def define_engine(shard: int) -> None:
    """Defines the flags of work in parts, with the default number of inputs in a part."""
    flags.DEFINE_enum(
        "engine",
        None,
        ENGINES,
        "Predict into part files in the folder --out, which can be resumed after a failure: in "
        "this process (local), or by workers on a cluster (ray).",
    )
    flags.DEFINE_integer("shard", shard, "With --engine: number of inputs in a part.", 1)
    flags.DEFINE_integer(
        "workers",
        None,
        "With --engine=ray: number of models; default: one on each accelerator, else on each node.",
        1,
    )


def options(texts: Iterable[str]) -> dict[str, Any]:
    """Parses the values of ``--option``: JSON, or a text without quotes.

    Raises:
      ValueError: one is not NAME=VALUE, or begins as JSON and is none.
    """
    return dict(map(_option, texts))


def _option(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"--option: got {text!r}, wanted NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        if not value.startswith(("[", "{", '"')):
            return name, value  # as in --config.data.options; the source checks the type
        raise ValueError(f"--option={text}: {value!r} is not JSON") from None


def given(*names: str) -> dict[str, Any]:
    """Collects the flags that are set on the command line, name to value."""
    return {name: flags.FLAGS[name].value for name in names if flags.FLAGS[name].present}


def data_place() -> dict[str, str]:
    """Returns the values of ``--data_source`` and ``--data_dir`` as ``source`` and ``data_dir``.

    Raises:
      ValueError: there is no such folder of prepared data sets.
    """
    place = {"source": flags.FLAGS.data_source, "data_dir": flags.FLAGS.data_dir}
    if place["data_dir"] is not None and not Path(place["data_dir"]).expanduser().is_dir():
        raise ValueError(f"--data_dir: there is no folder {place['data_dir']}")
    return {name: value for name, value in place.items() if value is not None}


def check_apart(out: str, *given: str | None) -> None:
    """Checks that an output does not replace an input, such as a table of paths.

    Raises:
      ValueError: it is one of them.
    """
    for one in given:
        if one and os.path.exists(one) and os.path.exists(out) and os.path.samefile(one, out):
            raise ValueError(f"{out}: is read as {one}, wanted another file to write")


def check_unused(*names: str, by: str) -> None:
    """Checks that flags that another flag does not use are not on the command line.

    Raises:
      ValueError: one is given.
    """
    if unused := given(*names):
        raise ValueError(f"--{next(iter(unused))} cannot be combined with --{by}")


def checkpoint(text: str) -> Literal["best", "latest"] | int:
    """Parses ``--checkpoint``.

    Raises:
      ValueError: it is neither ``latest``, ``best`` nor a step.
    """
    if text in ("best", "latest"):
        return cast(Literal["best", "latest"], text)
    if not text.isdigit():
        raise ValueError(f"--checkpoint: got {text!r}, wanted 'latest', 'best' or a step")
    return int(text)


def say(text: str) -> None:
    """Prints the next step of a command to standard error, so that it is not silent for long."""
    print(text, file=sys.stderr, flush=True)


def only(arguments: Sequence[str], wanted: str) -> str:
    """Returns the single positional argument of a command.

    Args:
      arguments: positional arguments.
      wanted: description of the argument, for the message.

    Raises:
      ValueError: there is none, or more than one.
    """
    if len(arguments) != 1:
        raise ValueError(f"wanted {wanted}, got {', '.join(arguments) or 'none'}")
    return arguments[0]


def refuse(arguments: Sequence[str]) -> None:
    """Checks that a command without positional arguments got none.

    Raises:
      ValueError: there is one.
    """
    if arguments:
        raise ValueError(f"got {arguments[0]!r}, which is not a flag: write --name=value")
