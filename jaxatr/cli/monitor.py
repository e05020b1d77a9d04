"""Says what changed in a run's predictions over days or hours, and since when.

jaxatr monitor TABLE|FOLDER... [--out=monitor.html] [--by=hour|day]
jaxatr monitor TABLE|FOLDER... --workdir=DIR [--table=figures.csv]

TABLE is what `jaxatr predict` and `jaxatr detect` write with --out, and
`jaxatr serve` with --record; FOLDER is a folder of such tables. Share of
unknown chips, classes, scores and facts of the images are compared with those
of the first days, in all sources together and in each. With --workdir, scores
and facts are compared with the run's training as well. In one of a hundred
pages, a change is found by chance.
"""

from collections.abc import Sequence

from absl import flags

from jaxatr.extras import require


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_multi_string(
        "workdir",
        None,
        "The run's folder, with whose training the predictions are compared; repeat it for an "
        "ensemble.",
    )
    flags.DEFINE_string("out", "monitor.html", "The HTML page.")
    flags.DEFINE_string(
        "table",
        None,
        "Also write the figures by period and source to this table (.csv, .jsonl or .parquet).",
    )
    flags.DEFINE_enum(
        "by",
        None,
        ["hour", "day"],
        "Length of the periods that are compared; default: day, or hour for less than three days.",
    )
    flags.DEFINE_string("time_column", "time", "The column with the time of a row.")
    flags.DEFINE_string("source_column", "source", "The column with the source of a row.")


def main(arguments: Sequence[str]) -> None:
    """Prints what has changed, and writes the page."""
    require("jinja2", extra="report", what="jaxatr monitor")
    if not arguments:
        raise ValueError("no table given: jaxatr monitor TABLE|FOLDER...")
    from jaxatr.cli import monitored  # late, to keep --help fast

    monitored.main(arguments)
