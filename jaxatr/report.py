"""Runs ``jaxatr report`` as ``python -m jaxatr.report``."""

from jaxatr.cli.main import run

if __name__ == "__main__":
    run("report")
