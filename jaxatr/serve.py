"""Runs ``jaxatr serve`` as ``python -m jaxatr.serve``."""

from jaxatr.cli.main import run

if __name__ == "__main__":
    run("serve")
