"""Measures what computes an operation fastest here, and keeps it.

jaxatr tune conv -n 32 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 [--direction=weight]
jaxatr tune bn|pool|softmax|lrn|tensor -n 32 -c 64 -H 56 -W 56 [--mode=MODE]
jaxatr tune rnn -n 16 -k 25 -W 512 -H 512 --mode=lstm
jaxatr tune ctc -n 32 -t 100 -L 20 -k 29
jaxatr tune model --name=resnet18 --size=64 --batch=32
jaxatr tune fusions
jaxatr tune show
"""

import sys
from collections.abc import Sequence
from typing import Any

from jaxatr import training
from jaxatr.tuning import conv, fusions, model, operation, show

COMMANDS: dict[str, Any] = {"conv": conv, **operation.commands()} | {
    "model": model,
    "fusions": fusions,
    "show": show,
}


def _named() -> str | None:
    """Reads the sub-command that the command line begins with: flags are its own."""
    return sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] in COMMANDS else None


def define_flags() -> None:
    """Defines the flags of the sub-command that the command line begins with."""
    if (name := _named()) is not None:
        COMMANDS[name].define_flags()


def description() -> str:
    """Picks the text of ``--help``: of the sub-command, or of all."""
    text = (__doc__ or "").strip()
    if (name := _named()) is None:
        return f"{text}\n\n`jaxatr tune conv --help` lists the flags of conv, and so on."
    uses = [line for line in text.splitlines()[2:] if name in line.split()[2].split("|")]
    summary = (COMMANDS[name].__doc__ or "").strip().partition("\n")[0]
    return "\n\n".join([summary, "\n".join(uses)])


def main(arguments: Sequence[str]) -> int | None:
    """Runs the sub-command that is named first."""
    if not arguments or arguments[0] != _named():
        got = f"got {arguments[0]!r}" if arguments else "nothing was given"
        raise ValueError(f"{got}, wanted one of {', '.join(COMMANDS)} first")
    training.enable_compilation_cache()
    return COMMANDS[arguments[0]].main(arguments[1:])
