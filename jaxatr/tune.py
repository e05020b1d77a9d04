"""Measures what computes an operation fastest here, and keeps it.

python -m jaxatr.tune conv -n 32 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 [--direction=weight]
python -m jaxatr.tune bn|pool|softmax|lrn|tensor -n 32 -c 64 -H 56 -W 56 [--mode=MODE]
python -m jaxatr.tune rnn -n 16 -k 25 -W 512 -H 512 --mode=lstm
python -m jaxatr.tune ctc -n 32 -t 100 -L 20 -k 29
python -m jaxatr.tune model --name=resnet18 --size=64 --batch=32
python -m jaxatr.tune fusions
python -m jaxatr.tune show
"""

import sys
from collections.abc import Sequence
from typing import Any

from jaxatr import command, training
from jaxatr.tuning import conv, fusions, model, operation, show

COMMANDS: dict[str, Any] = {"conv": conv, **operation.commands()} | {
    "model": model,
    "fusions": fusions,
    "show": show,
}


def define_flags() -> None:
    """Defines the flags of the sub-command that the command line begins with."""
    if len(sys.argv) > 1 and sys.argv[1] in COMMANDS:
        COMMANDS[sys.argv[1]].define_flags()


def main(arguments: Sequence[str]) -> int | None:
    """Runs the sub-command that is named first."""
    if not arguments or arguments[0] not in COMMANDS or sys.argv[1] != arguments[0]:
        got = f"got {arguments[0]!r}" if arguments else "nothing was given"
        raise ValueError(f"{got}, wanted one of {', '.join(COMMANDS)} first")
    training.enable_compilation_cache()
    return COMMANDS[arguments[0]].main(arguments[1:])


if __name__ == "__main__":
    command.run(main, define_flags)
