"""Runs ``jaxatr calibrate`` as ``python -m jaxatr.calibrate``."""

from jaxatr.cli.main import run

if __name__ == "__main__":
    run("calibrate")
