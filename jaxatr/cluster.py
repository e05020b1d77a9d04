"""Runs ``jaxatr cluster`` as ``python -m jaxatr.cluster``."""

from jaxatr.cli.main import run

if __name__ == "__main__":
    run("cluster")
