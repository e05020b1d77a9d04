"""The page that ``--help`` prints: how a command is used, its own flags, and the rest."""

import re
import shutil
import textwrap
from collections.abc import Iterable
from typing import Any

from absl import flags

_COLUMN = 26  # where the meaning of a flag begins
_WIDEST = 100
_ADDED_BY_ABSL = re.compile(r"^<[^>]*>: |;\s+repeat this option to specify a list of values")


def page(command: Any, own: Iterable[flags.Flag]) -> str:
    """Writes a command's page of help.

    Args:
      command: its module. The docstring, or what ``description()`` gives where the module has that
        function, is a first line that says what the command does, a paragraph of lines that begin
        with ``jaxatr``, and further paragraphs.
      own: the flags that the command defines.
    """
    text = command.description() if hasattr(command, "description") else command.__doc__
    summary, usage, *rest = text.strip().split("\n\n")
    lines = [f"usage: {textwrap.indent(usage, ' ' * 7).lstrip()}", "", summary, "", "flags:"]
    lines += [row for flag in own for row in columns(*_described(flag), _COLUMN)]
    for paragraph in rest:
        lines += ["", paragraph]
    lines += ["", "`--helpfull` lists the flags of the libraries too."]
    return "\n".join(lines)


def columns(name: str, meaning: str, column: int) -> list[str]:
    """Writes a name and its meaning in two columns, the second one wrapped.

    Args:
      name: which has a line of its own where it is too long.
      meaning: any text.
      column: where the second column begins.
    """
    width = max(20, min(shutil.get_terminal_size().columns, _WIDEST) - column)
    wrapped = textwrap.wrap(meaning, width, break_on_hyphens=False) or [""]
    lines = [" " * column + line for line in wrapped]
    if len(name) + 4 > column:
        return [f"  {name}", *lines]
    return [f"  {name}".ljust(column) + wrapped[0], *lines[1:]]


def _described(flag: flags.Flag) -> tuple[str, str]:
    """Names a flag, and says what it means, which values it takes, and its default."""
    name = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}"
    if len(flag.name) == 1:
        name = f"-{flag.name}"
    text = _ADDED_BY_ABSL.sub("", str(flag.help))
    sentences = [text if text.endswith(".") else f"{text}."]
    if choices := getattr(flag.parser, "enum_values", None):
        sentences.append(f"One of {', '.join(choices)}.")
    if any("other than None" in check.message for check in flag.validators):
        sentences.append("Must be given.")
    elif flag.default and "efault" not in text:
        sentences.append(f"Default: {'on' if flag.boolean else flag.default}.")
    elif flag.default == 0 and not flag.boolean:
        sentences.append("Default: 0.")
    return name, " ".join(sentences)
