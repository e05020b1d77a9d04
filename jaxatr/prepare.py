"""Runs ``jaxatr prepare`` as ``python -m jaxatr.prepare``."""

from jaxatr.cli.main import run

if __name__ == "__main__":
    run("prepare")
