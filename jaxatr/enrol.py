"""Runs ``jaxatr enrol`` as ``python -m jaxatr.enrol``."""

from jaxatr.cli.main import run

if __name__ == "__main__":
    run("enrol")
