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
from collections.abc import Sequence
from typing import Any


@functools.cache
def commands() -> dict[str, Any]:
    """Imports the sub-commands, and returns them by name."""
    from jaxatr.tuning import conv, fusions, model, operation, show  # late: --help needs none

    ends = {"model": model, "fusions": fusions, "show": show}
    return {"conv": conv, **operation.commands(), **ends}


def chosen(arguments: Sequence[str]) -> "SubCommand | None":
    """Returns the sub-command that the first argument names, whose flags are its own."""
    name = arguments[0] if arguments else ""
    # What begins with a dash is a flag of no sub-command: --help needs none of them.
    return SubCommand(name) if not name.startswith("-") and name in commands() else None


class SubCommand:
    """A sub-command as a command of its own."""

    def __init__(self, name: str):
        self._name, self._command = name, commands()[name]
        self.define_flags = self._command.define_flags

    def description(self, arguments: Sequence[str]) -> str:
        """Returns the text of ``--help``."""
        uses = [line for line in (__doc__ or "").splitlines()[2:] if line.split()[2] == self._name]
        summary = (self._command.__doc__ or "").strip().partition("\n")[0]
        return "\n\n".join([summary, "\n".join(uses)])

    def main(self, arguments: Sequence[str]) -> int | None:
        """Runs the sub-command; the first argument is its name."""
        from jaxatr import training  # late, to keep --help fast

        training.enable_compilation_cache()
        return self._command.main(arguments[1:])


def define_flags() -> None:
    """Defines no flags, because only sub-commands have some."""


def description(arguments: Sequence[str]) -> str:
    """Returns the text of ``--help``."""
    more = "`jaxatr tune conv --help` lists the flags of conv, and so on."
    return f"{(__doc__ or '').strip()}\n\n{more}"


def main(arguments: Sequence[str]) -> None:
    """Says that a sub-command is missing.

    Raises:
      ValueError: always, because :func:`chosen` returns the sub-commands.
    """
    got = f"got {arguments[0]!r}" if arguments else "no sub-command given"
    raise ValueError(f"{got}, wanted one of {', '.join(commands())} first")
