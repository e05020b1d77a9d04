"""Runs ``jaxatr train`` as ``python -m jaxatr.train``."""

import sys

if __name__ == "__main__":
    from jaxatr.cli.main import run

    run("train", sys.argv[1:])
else:  # importing this module must not hide the function of its name
    from jaxatr.runs import train_run

    sys.modules[__name__] = train_run  # type: ignore[assignment]
