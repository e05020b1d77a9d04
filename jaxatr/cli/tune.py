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

import functools
import sys
from collections.abc import Sequence
from typing import Any


@functools.cache
def commands() -> dict[str, Any]:
    """Imports the sub-commands, and returns them by name."""
    from jaxatr.tuning import conv, fusions, model, operation, show  # late: --help needs none

    ends = {"model": model, "fusions": fusions, "show": show}
    return {"conv": conv, **operation.commands(), **ends}


def _named() -> str | None:
    """Returns the sub-command on the command line, whose flags must be defined before parsing."""
    first = next(iter(sys.argv[1:]), "-")
    return first if not first.startswith("-") and first in commands() else None


def define_flags() -> None:
    """Defines the flags of the sub-command on the command line."""
    if (name := _named()) is not None:
        commands()[name].define_flags()


def description() -> str:
    """Returns the text of ``--help``, of the sub-command if one is given."""
    text = (__doc__ or "").strip()
    if (name := _named()) is None:
        return f"{text}\n\n`jaxatr tune conv --help` lists the flags of conv, and so on."
    uses = [line for line in text.splitlines()[2:] if line.split()[2] == name]
    summary = (commands()[name].__doc__ or "").strip().partition("\n")[0]
    return "\n\n".join([summary, "\n".join(uses)])


def main(arguments: Sequence[str]) -> int | None:
    """Runs the sub-command named by the first argument."""
    if not arguments or arguments[0] != _named():
        got = f"got {arguments[0]!r}" if arguments else "no sub-command given"
        raise ValueError(f"{got}, wanted one of {', '.join(commands())} first")
    from jaxatr import training

    training.enable_compilation_cache()
    return commands()[arguments[0]].main(arguments[1:])
