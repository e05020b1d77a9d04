"""Prepares a data set and says what it holds.

jaxatr prepare simulated --option=aspects=36
jaxatr prepare image_folder --source=DIR_OR_ARCHIVE --name=mstar10
jaxatr prepare dsiac --source=DIR --band=thermal --ranges=1000,2000,3000 --every=10
jaxatr prepare mstar --source=DIR
jaxatr prepare fgvc_aircraft --source=fgvc-aircraft-2013b --option=size=512
jaxatr prepare cifar10
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import flags

from jaxatr import data

_DSIAC_FLAGS = ("band", "ranges", "time", "every")


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_string("source", None, "Folder or archive of the data.")
    flags.DEFINE_string(
        "data_dir", None, "Where prepared sets lie; default: $JAXATR_DATA_DIR, or the user's cache."
    )
    flags.DEFINE_string("name", None, "Name to open it by from now on.")
    flags.DEFINE_bool("skip_corrupt", False, "Leave corrupt files out and list them.")
    flags.DEFINE_enum("band", None, ["visible", "thermal", "both"], "dsiac: which camera.")
    flags.DEFINE_list("ranges", None, "dsiac: metres, 1000 to 5000 in steps of 500.")
    flags.DEFINE_enum("time", None, ["day", "night", "both"], "dsiac: time of day.")
    flags.DEFINE_integer("every", None, "dsiac: keep one frame in so many.")
    flags.DEFINE_multi_string(
        "option",
        [],
        "NAME=VALUE of the data set's own, the value as JSON: aspects=36, ranges=[1000].",
    )


def main(arguments: Sequence[str]) -> None:
    """Prepares the set that is named and prints its classes, splits, place and skipped files."""
    if len(arguments) != 1:
        raise ValueError(f"one data set's name is expected, got {list(arguments)}")
    dataset = data.prepare(
        arguments[0],
        data_dir=flags.FLAGS.data_dir,
        source=flags.FLAGS.source,
        as_name=flags.FLAGS.name,
        options=_options(arguments[0]),
        skip_corrupt=flags.FLAGS.skip_corrupt,
    )
    print("\n".join(_lines(dataset)))


def _options(name: str) -> dict[str, Any]:
    options = dict(map(_option, flags.FLAGS.option))
    for flag in _DSIAC_FLAGS:
        value = flags.FLAGS[flag].value
        if value is None:
            continue
        if name != "dsiac":
            raise ValueError(f"--{flag} is of dsiac, and {name} has no such flag")
        if flag in options:
            raise ValueError(f"--{flag} and --option={flag}=… are the same: give one")
        options[flag] = [_metres(text) for text in value] if flag == "ranges" else value
    return options


def _metres(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"--ranges: got {text!r}, wanted metres, as in --ranges=1000,2000")
    return int(text)


def _option(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"--option is NAME=VALUE, got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        raise ValueError(f"--option={text}: {value!r} is not JSON") from None


def _lines(dataset: data.Dataset) -> list[str]:
    lines = [f"{dataset.name}: {len(dataset.classes)} classes: {', '.join(dataset.classes)}"]
    if dataset.coarse_classes is not None:
        coarse = ", ".join(dataset.coarse_classes)
        lines.append(f"  {len(dataset.coarse_classes)} coarse classes: {coarse}")
    for name, split in dataset.splits.items():
        lines.append(f"  {name}: {len(split)} images, {split.dtype}, {_sizes(split)}")
        counts = np.bincount(split.columns["label"], minlength=len(dataset.classes))
        each = zip(dataset.classes, counts.tolist(), strict=True)
        lines.append("    " + ", ".join(f"{label} {count}" for label, count in each))
    if dataset.skipped:
        lines.append(f"  skipped {len(dataset.skipped)}:")
        lines += [f"    {path}: {why}" for path, why in dataset.skipped]
    lines += [f"  {note}" for note in dataset.notes]
    return [*lines, f"  in {dataset.directory}", f"  fingerprint {dataset.fingerprint}"]


def _sizes(split: data.Split) -> str:
    columns = [split.columns[name] for name in ("height", "width", "channels")]
    least, most = ("x".join(str(f(column)) for column in columns) for f in (np.min, np.max))
    return least if least == most else f"{least} to {most}"
