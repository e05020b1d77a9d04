"""Runs ``jaxatr tune`` as ``python -m jaxatr.tune``."""

from jaxatr.cli.main import run

if __name__ == "__main__":
    run("tune")
