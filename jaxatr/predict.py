"""Runs ``jaxatr predict`` as ``python -m jaxatr.predict``."""

from jaxatr.cli.main import run

if __name__ == "__main__":
    run("predict")
