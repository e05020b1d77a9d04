"""Prepares a data set for training, prints its content, and checks it.

jaxatr prepare simulated --option=aspects=36
jaxatr prepare image_folder --data_source=DIR_OR_ARCHIVE --name=mstar10
jaxatr prepare dsiac --data_source=DIR --band=thermal --ranges=1000,2000,3000 --every=10
jaxatr prepare mstar --data_source=DIR
jaxatr prepare fgvc_aircraft --data_source=fgvc-aircraft-2013b --option=size=512
jaxatr prepare cifar10
jaxatr prepare scenes --data_source=SCENES --boxes=FILE [--bad_boxes=skip]
jaxatr prepare chips --data_source=SCENES --boxes=FILE --out=CHIPS

The last one writes the chips around the boxes of scenes as image files. FILE is
COCO's .json, .geojson, a table (path, x, y, width, height, label[, angle]), or
a folder of COCO, VOC, YOLO or DOTA files.
"""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from absl import flags

from jaxatr import data
from jaxatr.cli import inputs
from jaxatr.cli.help_page import columns
from jaxatr.data import doctor, sources
from jaxatr.data.source import Flag

_CHIPS = "chips"  # image files, no prepared set


def define_flags() -> None:
    """Defines the command's flags and those of the data sources."""
    inputs.define_data(
        "Folder or archive of the data.",
        "Folder of prepared data sets; default: $JAXATR_DATA_DIR, or a folder in the user's cache.",
    )
    flags.DEFINE_string("name", None, "Name of the prepared data set; default: the source's.")
    flags.DEFINE_bool("skip_corrupt", False, "Skip corrupt files and list them.")
    flags.DEFINE_string("out", None, "With chips: the folder to write, new or empty.")
    inputs.define_options()
    flags.DEFINE_bool("check", True, "Also check the data set, like `jaxatr check`.")
    for name, of_sources in data.options_with_flags().items():
        flag = cast(Flag, next(iter(of_sources.values())).flag)
        meaning = " ".join(f"{source}: {own.meaning}." for source, own in of_sources.items())
        choices = (list(flag.choices),) if flag.kind == "enum" else ()
        getattr(flags, f"DEFINE_{flag.kind}")(name, None, *choices, meaning)


def description(arguments: Sequence[str]) -> str:
    """Returns the text of ``--help`` with the options of the package's data sets."""
    rows = []
    for name in sources.names():
        rows.append(f"  {name}")
        for option, own in sources.SOURCES[name].options.items():
            default = json.dumps(own.default)
            rows += columns(f"  {option}", f"{own.meaning}. Default: {default}.", 26)
    return f"{(__doc__ or '').strip()}\n\noptions of the data sets, for --option:\n" + "\n".join(
        rows
    )


def main(arguments: Sequence[str]) -> None:
    """Prepares a data set, and prints its classes, splits, folder and skipped files."""
    from jaxatr.reporting import check_page  # late, to keep --help fast

    given = inputs.only(arguments, "the name of one data set")
    if given == _CHIPS:
        _write_chips()
        return
    if flags.FLAGS.out:
        raise ValueError(f"--out is for jaxatr prepare {_CHIPS}")
    inputs.say(f"preparing {given}")
    dataset = data.prepare(
        given,
        data_dir=flags.FLAGS.data_dir,
        source=flags.FLAGS.data_source,
        as_name=flags.FLAGS.name,
        options=_options(given),
        skip_corrupt=flags.FLAGS.skip_corrupt,
    )
    print("\n".join(_lines(dataset)), flush=True)
    if flags.FLAGS.check:
        diagnosis = doctor.examine(
            doctor.of_dataset(dataset), limit=inputs.CHECKED, begins=inputs.say
        )
        print("\n".join(check_page.lines(diagnosis)))
        unnamed = given == "image_folder" and flags.FLAGS.name is None
        name = flags.FLAGS.data_source if unnamed else flags.FLAGS.name or given
        print(f"for all findings with pictures: {_check_command(name, given, unnamed)}")


def _write_chips() -> None:
    """Writes chips as files, and prints how many, and what was left out."""
    from jaxatr.data.sources.scenes.files import write_chips

    values = flags.FLAGS
    inputs.check_unused("data_dir", "name", "check", by=_CHIPS)
    for name in ("data_source", "out"):
        if not values[name].value:
            raise ValueError(f"jaxatr prepare {_CHIPS} needs --{name}")
    out = Path(values.out).expanduser()
    inputs.say(f"cutting chips out of {values.data_source}")
    written = write_chips(
        Path(values.data_source).expanduser().absolute(),
        out,
        _options("scenes"),
        skip_corrupt=values.skip_corrupt,
    )
    for (part, label), count in sorted(written.counts.items()):
        print(f"{out / part / label}: {count} chips")
    for line in written.notes:
        print(f"left out: {line}")
    for place, why in written.skipped:
        print(f"skipped {place}: {why}")


def _check_command(name: str, source: str, is_path: bool) -> str:
    """Returns the command that checks what was prepared."""
    values = flags.FLAGS
    words = ["jaxatr", "check", name]
    if not is_path and values.data_dir is not None:
        words.append(f"--data_dir={values.data_dir}")
    if values.name is None:  # a set with a name of its own knows where it is from
        if not is_path and values.data_source is not None:
            words.append(f"--data_source={values.data_source}")
        words += [f"--option={key}={json.dumps(value)}" for key, value in _options(source).items()]
    return shlex.join([*words, "--out=FILE.html"])


def _options(source: str) -> dict[str, Any]:
    options = inputs.options(flags.FLAGS.option)
    for name, of_sources in data.options_with_flags().items():
        value = flags.FLAGS[name].value
        if value is None:
            continue
        if source not in of_sources:
            raise ValueError(f"--{name} is a flag of {', '.join(of_sources)}, but not of {source}")
        if name in options:
            raise ValueError(f"--{name} and --option={name}=… are the same: give only one")
        options[name] = cast(Flag, of_sources[source].flag).convert(value)
    return options


def _lines(dataset: data.Dataset) -> list[str]:
    lines = [f"{dataset.name}: {len(dataset.classes)} classes: {', '.join(dataset.classes)}"]
    if dataset.coarse_classes is not None:
        coarse = ", ".join(dataset.coarse_classes)
        lines.append(f"  {len(dataset.coarse_classes)} coarse classes: {coarse}")
    for name, split in dataset.splits.items():
        lines.append(f"  {name}: {len(split)} images, {split.dtype}, {_sizes(split)}")
        labels = split.columns["label"]
        counts = np.bincount(labels[labels >= 0], minlength=len(dataset.classes))
        each = [*zip(dataset.classes, counts.tolist(), strict=True)]
        if strangers := int((labels < 0).sum()):
            each = [("no class", strangers), *(one for one in each if one[1])]
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
