"""Runs ``jaxatr convert`` as ``python -m jaxatr.convert``."""

from jaxatr.cli.main import run

if __name__ == "__main__":
    run("convert")
