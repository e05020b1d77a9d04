"""Suggests which images of a pool to label next, by uncertainty and diversity.

jaxatr suggest --workdir=DIR --pool=FOLDER [--count=50] [--out=table.csv|.jsonl|.parquet]
jaxatr suggest --workdir=DIR --pool=FOLDER [--count=50] --page=label.html

POOL is a folder, an archive, a table of paths or an image; repeat the flag for several. The page
shows the images, takes a label for each by a key or button, and saves a table of path and label,
which trains a new run (--config.data.added=labels.csv) or enrols classes (jaxatr enrol).
"""

import json
import sys
from collections.abc import Sequence

from absl import flags

from jaxatr.cli import inputs
from jaxatr.cli.terminal import one_line
from jaxatr.extras import require

_METHODS = ("mixed", "margin", "coverage")  # those of jaxatr.openset.labelling, slow to import


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
    flags.DEFINE_multi_string(
        "pool", None, "The images: a folder, an archive, a table or a file.", required=True
    )
    flags.DEFINE_integer("count", 50, "Number of images to suggest.", 1)
    flags.DEFINE_enum(
        "method",
        _METHODS[0],
        _METHODS,
        "How images that are judged known are chosen: by uncertainty and diversity, by uncertainty "
        "alone, or by diversity alone, which needs the training data.",
    )
    flags.DEFINE_string("out", None, "Write a row for each to this table (.csv, .jsonl, .parquet).")
    flags.DEFINE_string("page", None, "Write a page to this HTML file, on which to label them.")
    flags.DEFINE_multi_string(
        "labelled", [], "Leave out the images that this table names, because they have a label."
    )
    flags.DEFINE_string("score", None, "The score that decides; default: the run's.")
    flags.DEFINE_string("checkpoint", "latest", "'latest', 'best' or a step.")
    inputs.define_data(former=False)
    flags.DEFINE_bool("json", False, "Print a JSON object per line.")


def main(arguments: Sequence[str]) -> None:
    """Suggests images, and prints or writes them."""
    inputs.refuse(arguments)
    require("jinja2", "sklearn", extra="report", what="jaxatr suggest")
    # Late, to keep --help fast.
    from jaxatr import data, runs, training
    from jaxatr.reporting import text_table

    training.enable_compilation_cache()
    values = flags.FLAGS
    if values.out:
        data.check_table(values.out)
    for out in filter(None, (values.out, values.page)):
        inputs.check_apart(out, *values.pool, *values.labelled)
    inputs.say(f"loading {values.workdir}, and predicting the images")
    found = runs.suggest_run(
        values.workdir,
        values.pool,
        values.count,
        method=values.method,
        labelled=values.labelled,
        page=values.page,
        score=values.score,
        checkpoint=inputs.checkpoint(values.checkpoint),
        where=inputs.data_place(),
    )
    for name, reason in found.left_out:
        print(f"warning: {one_line(name)}: {reason}", file=sys.stderr)
    if values.out:
        data.write_table(values.out, found.table(), text=("path", "why"))
    said = sys.stdout
    if values.json:
        said = sys.stderr
        for one in found.records():
            print(json.dumps(one, ensure_ascii=False))
    elif not values.out:
        rows = [[str(one.rank), one_line(one.path), one.why, one.verdict] for one in found.chips]
        print(text_table(["rank", "image", "why", "decision"], rows))
    print(
        f"{len(found.chips)} of {found.images} images to label; {found.rejected} of all are judged "
        "unknown",
        file=said,
    )
    for name, path in (("table", values.out), ("page", values.page)):
        if path:
            print(f"{name}: {path}", file=said)
