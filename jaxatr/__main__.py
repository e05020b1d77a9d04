"""Runs ``jaxatr`` as ``python -m jaxatr``."""

from jaxatr.cli.main import main

if __name__ == "__main__":
    main()
