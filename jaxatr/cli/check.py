"""Checks a data set: damage, duplicates, imbalance, and what gives classes away.

jaxatr check PATH [--page=FILE.html] [--center_crop=64]
jaxatr check NAME [--source=PATH] [--option=NAME=VALUE] [--page=FILE.html]

PATH is a folder of images, an archive of one, or a table; NAME is a data set of `jaxatr prepare`.
It ends with exit code 1 where something was found that spoils a training or its figures.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from absl import flags

from jaxatr import data
from jaxatr.cli import inputs
from jaxatr.data import doctor, sources
from jaxatr.data.source import all_options
from jaxatr.data.sources import image_folder
from jaxatr.reporting import checked


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_string("page", None, "Write a page with the pictures, too: an HTML file.")
    flags.DEFINE_integer(
        "center_crop",
        0,
        "Check the centre square of this side, in pixels, in place of the image.",
        0,
    )
    flags.DEFINE_float(
        "alike", doctor.ALIKE, "Correlation from which two images count as nearly equal.", 0.0, 1.0
    )
    flags.DEFINE_integer(
        "limit", inputs.CHECKED, "Read so many images at most, which are drawn; 0: all.", 0
    )
    flags.DEFINE_string("source", None, "Of a data set by its name: folder or archive of the data.")
    flags.DEFINE_string("data_dir", None, "Of a data set by its name: where prepared sets lie.")
    inputs.define_options()


def main(arguments: Sequence[str]) -> int:
    """Prints tables and findings, and writes the page; 1 where there is an error among them."""
    if len(arguments) != 1:
        raise ValueError(f"one folder, archive, table or data set is expected, got {[*arguments]}")
    values = flags.FLAGS
    chip = data.Chip(center_crop=values.center_crop) if values.center_crop else None
    with _subject(arguments[0]) as subject:
        found = doctor.examine(subject, chip=chip, alike=values.alike, limit=values.limit)
        print("\n".join(checked.tables(found)))
        if values.page:
            checked.write_page(found, values.page, chip)
            print(f"page: {values.page}")
    return 1 if any(one.level == "error" for one in found.findings) else 0


@contextmanager
def _subject(name: str) -> Iterator[doctor.Subject]:
    """Gives what is to be checked; an archive lies unpacked meanwhile."""
    values, path = flags.FLAGS, Path(name).expanduser()
    options = inputs.options(values.option)
    if name in sources.names() or not path.exists():
        dataset = data.open_dataset(
            name,
            data_dir=values.data_dir,
            source=values.source,
            options=options,
            skip_corrupt=values.source is not None,
        )
        yield doctor.of_dataset(dataset)
        return
    if values.source is not None:
        raise ValueError(f"--source is of a data set by its name, and {name} is a path")
    settings = all_options(image_folder.SOURCE, options)
    with tempfile.TemporaryDirectory(prefix="jaxatr-check-") as scratch:
        folder = image_folder.image_folder(path.absolute(), settings, Path(scratch) / "source")
        yield doctor.of_folder(folder, path.name or str(path))
