"""Finds the fastest implementation of an operation on this device, and records it.

jaxatr tune conv -n 32 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 [--direction=weight]
jaxatr tune bn -n 32 -c 64 -H 56 -W 56 [--mode=per_activation] [--activation=relu]
jaxatr tune pool -n 32 -c 64 -H 56 -W 56 -y 3 -x 3 [--mode=average]
jaxatr tune softmax -n 32 -c 64 -H 56 -W 56 [--mode=instance] [--log]
jaxatr tune lrn -n 32 -c 64 -H 56 -W 56 [--mode=within]
jaxatr tune tensor -n 32 -c 64 -H 56 -W 56 [--name=mul] [--shared=nHW]
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
    """Returns the sub-command on the command line, whose flags must be defined before parsing."""
    return sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] in COMMANDS else None


def define_flags() -> None:
    """Defines the flags of the sub-command on the command line."""
    if (name := _named()) is not None:
        COMMANDS[name].define_flags()


def description() -> str:
    """Returns the text of ``--help``, of the sub-command if one is given."""
    text = (__doc__ or "").strip()
    if (name := _named()) is None:
        return f"{text}\n\n`jaxatr tune conv --help` lists the flags of conv, and so on."
    uses = [line for line in text.splitlines()[2:] if line.split()[2] == name]
    summary = (COMMANDS[name].__doc__ or "").strip().partition("\n")[0]
    return "\n\n".join([summary, "\n".join(uses)])


def main(arguments: Sequence[str]) -> int | None:
    """Runs the sub-command named by the first argument."""
    if not arguments or arguments[0] != _named():
        got = f"got {arguments[0]!r}" if arguments else "no sub-command given"
        raise ValueError(f"{got}, wanted one of {', '.join(COMMANDS)} first")
    training.enable_compilation_cache()
    return COMMANDS[arguments[0]].main(arguments[1:])
