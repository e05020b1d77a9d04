"""Checks a data set for damaged files, duplicates, imbalance, and facts that reveal the class.

jaxatr check PATH [--out=FILE.html] [--center_crop=64]
jaxatr check PATH --suspects=TABLE.csv [--network=efficientnet_lite0] [--out=FILE.html]
jaxatr check NAME [--data_source=PATH] [--option=NAME=VALUE] [--out=FILE.html]
jaxatr check SCENES --boxes=FILE

PATH is a folder of images, an archive of such a folder, or a table; NAME is a
data set known to `jaxatr prepare`. SCENES and FILE are scenes and their boxes,
as for `jaxatr prepare scenes`: the boxes are checked instead of the pixels.
--suspects ranks the labels that may be wrong by predictions without the image:
from its pixels, or better from the features of a published network; its page
shows the most doubtful ones and saves a table of corrected labels. The exit
code is 1 if a problem would invalidate a training or its figures.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from absl import flags

from jaxatr import data, files
from jaxatr.cli import inputs
from jaxatr.data import doctor, sources
from jaxatr.data.catalogue import NoSuchDatasetError
from jaxatr.data.source import all_options
from jaxatr.data.sources import image_folder
from jaxatr.extras import require
from jaxatr.files import Scratch
from jaxatr.resolve import trust_names_in


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_string("out", None, "Also write an HTML page with pictures to this file.")
    flags.DEFINE_alias("page", "out")
    flags.DEFINE_integer(
        "center_crop",
        0,
        "Check only the centre square of each image, with this side in pixels; 0: whole images.",
        0,
    )
    flags.DEFINE_float(
        "alike", doctor.ALIKE, "Correlation from which two images count as nearly equal.", 0.0, 1.0
    )
    flags.DEFINE_integer(
        "limit", inputs.CHECKED, "Check at most this many images, sampled randomly; 0: all.", 0
    )
    flags.DEFINE_string(
        "suspects",
        None,
        "Rank labels that may be wrong, and write all of them to this table (.csv, .jsonl or "
        ".parquet).",
    )
    flags.DEFINE_string(
        "network", "", "With --suspects: a published network whose features tell classes apart."
    )
    flags.DEFINE_string("boxes", None, "Check the boxes of scenes: their file or folder.")
    inputs.define_data(
        "With NAME: folder or archive of the data.", "With NAME: folder of prepared data sets."
    )
    inputs.define_options()


def main(arguments: Sequence[str]) -> int:
    """Prints tables and findings, and writes the page; returns 1 if a finding is an error."""
    from jaxatr.reporting import check_page  # late, to keep --help fast

    given = inputs.only(arguments, "one folder, archive, table or data set")
    if flags.FLAGS.boxes:
        inputs.check_unused("out", "center_crop", "alike", "limit", "data_source", by="boxes")
        return _check_boxes(Path(given).expanduser(), Path(flags.FLAGS.boxes).expanduser())
    trust_names_in(given)  # the user's own
    values = flags.FLAGS
    require("jinja2", "sklearn", extra="report", what="jaxatr check")
    chip = data.Chip(center_crop=values.center_crop) if values.center_crop else None
    if values.out:
        files.check_page(values.out)
    if values.suspects:
        inputs.check_unused("alike", "limit", by="suspects")
        data.check_table(values.suspects)
        inputs.check_apart(values.suspects, given)
    if values.network and not values.suspects:
        raise ValueError("--network: only with --suspects")
    inputs.say(f"listing the images of {given}")  # an archive is unpacked
    with _subject(given) as subject:
        if values.suspects:
            from jaxatr.cli import suspects  # late, to keep --help fast

            suspects.rank(subject, values.suspects, values.network, chip, values.out)
            return 0
        diagnosis = doctor.examine(
            subject, chip=chip, alike=values.alike, limit=values.limit, begins=inputs.say
        )
        print("\n".join(check_page.tables(diagnosis)))
        if values.out:
            check_page.write_page(diagnosis, values.out, chip)
            print(f"page: {values.out}")
    return 1 if any(one.level == "error" for one in diagnosis.findings) else 0


def _check_boxes(scenes: Path, boxes: Path) -> int:
    """Prints the sizes of the boxes of scenes, and findings; returns 1 if one is an error."""
    from jaxatr.data.annotations import examined, read_annotations
    from jaxatr.reporting.check_page import finding_lines
    from jaxatr.reporting.tables import text_table

    inputs.say(f"reading the boxes of {scenes}")
    found = read_annotations(scenes, boxes, bad_boxes="skip")
    classes = examined.sizes(found)
    parts = sorted({part for one in classes.values() for part in one.counts})
    rows = [
        [label or "no class"]
        + [str(one.counts[part]) for part in parts]
        + [f"{side:.0f}" for side in one.sides]
        for label, one in classes.items()
    ]
    many = "" if len(found.scenes) == 1 else "s"
    print(f"{len(found.scenes)} scene{many}; longer sides of boxes in pixels:")
    print(text_table(["class", *parts, "5 %", "median", "95 %"], rows))
    findings = examined.examine(found, scenes if scenes.is_dir() else scenes.parent)
    print("\n".join(["", *finding_lines(findings)]))
    return 1 if any(one.level == "error" for one in findings) else 0


@contextmanager
def _subject(name: str) -> Iterator[doctor.Subject]:
    """Opens the subject of the check; an archive stays unpacked inside the context."""
    values, path = flags.FLAGS, Path(name).expanduser()
    options = inputs.options(values.option)
    is_path = path.is_absolute() or ("/" in name and path.parent.is_dir())
    if is_path and not path.exists():
        raise ValueError(f"there is no folder, archive or table {name}")
    if name in sources.names() or not path.exists():
        try:
            dataset = data.open_dataset(
                name,
                **inputs.data_place(),
                options=options,
                skip_corrupt=values.data_source is not None,
            )
        except NoSuchDatasetError as error:
            raise ValueError(f"there is no folder, archive or table {name}, and {error}") from error
        yield doctor.of_dataset(dataset)
        return
    for flag in ("data_source", "data_dir"):
        if values[flag].value is not None:
            raise ValueError(f"--{flag} is for data sets given by name, but {name} is a path")
    settings = all_options(image_folder.PART, options)
    with Scratch() as scratch:
        folder = image_folder.image_folder(path.absolute(), settings, Path(scratch) / "source")
        yield doctor.of_folder(folder, path.name or str(path))
