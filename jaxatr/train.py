"""Runs ``jaxatr train`` as ``python -m jaxatr.train``."""

from jaxatr.cli.main import run

if __name__ == "__main__":
    run("train")
