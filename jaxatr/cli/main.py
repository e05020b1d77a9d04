"""The console script ``jaxatr``, and the entry point of ``python -m jaxatr``."""

import ast
import contextlib
import importlib
import os
import pkgutil
import signal
import sys
from collections.abc import Sequence
from types import FrameType

import jaxatr
from jaxatr import memory
from jaxatr.resolve import nearest

COMMANDS = (
    *(
        "train",
        "search",
        "evaluate",
        "predict",
        "detect",
        "calibrate",
        "enrol",
        "cluster",
        "suggest",
        "explain",
    ),
    *("check", "prepare", "convert", "tune", "report", "monitor", "serve"),
)

_EXIT_STOPPED = 75  # jaxatr.training.EXIT_PREEMPTED, which is slow to import


def main() -> None:
    """Runs the command named by the first argument, or lists the commands."""
    name, *rest = sys.argv[1:] or ["--help"]
    if name in ("--help", "-h", "--helpfull"):
        print(overview())
    elif name == "--version":
        print(f"jaxatr {jaxatr.__version__}")
    elif name in COMMANDS:
        run(name, rest)
    else:
        wanted = f"wanted one of {', '.join(COMMANDS)}{nearest(name, COMMANDS)}"
        print(f"error: got {name!r}, {wanted}", file=sys.stderr)
        sys.exit(2)


def run(name: str, arguments: Sequence[str]) -> None:
    """Runs a command, and exits with its code.

    Args:
      name: one of :data:`COMMANDS`, the module of a :class:`jaxatr.cli.command.Command`.
      arguments: the command's flags and positional arguments.
    """
    trains = name in ("train", "search")
    if trains:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _stop)
    else:
        signal.signal(signal.SIGTERM, _end)
    # Must precede the imports of NumPy and jax, whose threads would have separate heaps.
    memory.keep(one_heap=not trains)
    memory.collect_rarely()
    try:
        command = importlib.import_module("jaxatr.cli.command")
        command.run(importlib.import_module(f"jaxatr.cli.{name}"), arguments)
    except KeyboardInterrupt:
        _interrupted()


def _stop(number: int, frame: FrameType | None) -> None:
    """Ends a training at a signal, before and after the loop, which saves and then ends by itself.

    Nothing is lost, because every file is written as a whole.
    """
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_DFL)  # a second signal ends the process at once
    os.write(2, b"error: stopped on request; the same command continues\n")
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    if frame is not None:  # an exception would crash the modules in C that are being imported
        os._exit(_EXIT_STOPPED)
    sys.exit(_EXIT_STOPPED)


def _end(number: int, frame: FrameType | None) -> None:
    """Removes the temporary folders of a process, such as unpacked chips, and ends it."""
    signal.signal(number, signal.SIG_DFL)
    if (files := sys.modules.get("jaxatr.files")) is not None:
        files.Scratch.remove_all()
    os.kill(os.getpid(), number)


def _interrupted() -> None:
    """Ends the process by Ctrl-C without a traceback, and so that a shell's loop ends too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would cut the line off
    with contextlib.suppress(OSError, ValueError):  # closed
        sys.stdout.flush()
    print("error: stopped by Ctrl-C", file=sys.stderr, flush=True)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


def overview() -> str:
    """Lists the commands with the first lines of their docstrings, without importing them."""
    # absl takes longer to import than Python to start, and a training answers signals sooner.
    from jaxatr.cli.help_page import columns

    rows = [row for name in COMMANDS for row in columns(name, _summary(name), 13)]
    return "\n".join(
        [
            "usage: jaxatr COMMAND [--flag=VALUE ...]",
            "",
            "Target recognition in images with JAX.",
            "",
            "commands:",
            *rows,
            "",
            "`jaxatr COMMAND --help` describes a command; `jaxatr --version` prints the version.",
        ]
    )


def _summary(name: str) -> str:
    source = pkgutil.get_data("jaxatr.cli", f"{name}.py") or b""
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
