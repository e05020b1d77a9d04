"""Runs ``jaxatr evaluate`` as ``python -m jaxatr.evaluate``."""

from jaxatr.cli.main import run

if __name__ == "__main__":
    run("evaluate")
