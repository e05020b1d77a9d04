"""Formats the page that ``--help`` prints: usage, flags and further text of a command."""

import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from absl import flags

from jaxatr.cli.inputs import FORMER

_COLUMN = 26  # column of the flags' descriptions
_WIDEST = 100


def page(command: Any, own: Iterable[flags.Flag], arguments: Sequence[str] = ()) -> str:
    """Formats a command's help page.

    Args:
      command: the command's module. Its docstring, or the result of its function
        ``description(arguments)`` if it has one, consists of a summary line, a paragraph of usage
        lines that begin with ``jaxatr``, and further paragraphs.
      own: the flags that the command defines.
      arguments: those of the command line, on which the description may depend.
    """
    text = command.description(arguments) if hasattr(command, "description") else command.__doc__
    summary, usage, *rest = text.strip().split("\n\n")
    lines = [f"usage: {textwrap.indent(usage, ' ' * 7).lstrip()}", "", summary, "", "flags:"]
    shown = [flag for flag in own if flag.name not in FORMER]
    lines += [row for flag in shown for row in columns(*_described(flag), _COLUMN)]
    for paragraph in rest:
        lines += ["", paragraph]
    lines += ["", "`--helpfull` also lists the flags of the libraries."]
    return "\n".join(lines)


def is_required(flag: flags.Flag) -> bool:
    """Returns whether a flag must be given."""
    return any(not check.checker(None) for check in flag.validators)


def columns(name: str, meaning: str, column: int) -> list[str]:
    """Formats a name and its meaning in two columns, wrapping the second.

    Args:
      name: the text of the first column; on a line of its own if it is too long.
      meaning: the text of the second column.
      column: position of the second column.
    """
    width = max(20, min(shutil.get_terminal_size().columns, _WIDEST) - column)
    wrapped = textwrap.wrap(meaning, width, break_on_hyphens=False) or [""]
    lines = [" " * column + line for line in wrapped]
    if len(name) + 4 > column:
        return [f"  {name}", *lines]
    return [f"  {name}".ljust(column) + wrapped[0], *lines[1:]]


def _described(flag: flags.Flag) -> tuple[str, str]:
    """Returns a flag's name, and its description with its choices and its default."""
    name = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}"
    if len(flag.name) == 1:
        name = f"-{flag.name}"
    choices = getattr(flag.parser, "enum_values", None) or []
    # absl puts the choices first, and last, in a line of its own, that the flag may be repeated.
    text = str(flag.help).removeprefix(f"<{'|'.join(choices)}>: ").partition(";\n")[0]
    sentences = [text if text.endswith(".") else f"{text}."]
    if choices:
        sentences.append(f"One of {', '.join(choices)}.")
    if is_required(flag):
        sentences.append("Required.")
    elif flag.default and "efault" not in text:
        default = ",".join(flag.default) if isinstance(flag.default, list) else flag.default
        sentences.append(f"Default: {'on' if flag.boolean else default}.")
    elif flag.default == 0 and not flag.boolean:
        sentences.append("Default: 0.")
    return name, " ".join(sentences)
