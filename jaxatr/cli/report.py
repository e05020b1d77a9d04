"""Writes a report about evaluated runs: a self-contained HTML page.

jaxatr report --workdir=DIR [--workdir=DIR ...] [--out=report.html]
"""

from collections.abc import Sequence

from absl import flags

from jaxatr.cli import inputs
from jaxatr.extras import require


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_multi_string("workdir", None, "A run's folder; repeatable.", required=True)
    flags.DEFINE_string("out", "report.html", "The HTML file to write.")


def main(arguments: Sequence[str]) -> None:
    """Writes the report."""
    from jaxatr import reporting  # late, to keep --help fast

    inputs.refuse(arguments)
    require("jinja2", "sklearn", extra="report", what="jaxatr report")
    inputs.say(f"reading {', '.join(flags.FLAGS.workdir)}")
    reporting.write_report(flags.FLAGS.workdir, flags.FLAGS.out)
    print(f"report: {flags.FLAGS.out}")
