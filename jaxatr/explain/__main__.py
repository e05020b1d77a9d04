"""Runs ``jaxatr explain`` as ``python -m jaxatr.explain``."""

from jaxatr.cli.main import run

if __name__ == "__main__":
    run("explain")
