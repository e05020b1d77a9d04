"""Writes a report about evaluated runs: one page to look at, that needs no other file.

python -m jaxatr.report --workdir=DIR [--workdir=DIR ...] [--out=report.html]
"""

from absl import flags

from jaxatr import command, reporting


def define_flags() -> None:
    """Defines the command's flags; only the command itself does, so that it can be imported."""
    flags.DEFINE_multi_string("workdir", None, "A run's folder; several times.", required=True)
    flags.DEFINE_string("out", "report.html", "The HTML file to write.")


def main(arguments) -> None:
    """Writes the page."""
    if arguments:
        raise ValueError(f"got {arguments[0]!r}, which is no flag: write --name=value")
    reporting.write_report(flags.FLAGS.workdir, flags.FLAGS.out)
    print(f"report: {flags.FLAGS.out}")


if __name__ == "__main__":
    command.run(main, define_flags)
