"""Runs ``jaxatr check`` as ``python -m jaxatr.check``."""

from jaxatr.cli.main import run

if __name__ == "__main__":
    run("check")
