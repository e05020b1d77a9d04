"""Options that each kind of run has of its own."""

import inspect
import os
from collections.abc import Callable, Iterable

_OF_PYTHON = ("field", "enrolled")  # options that no command offers


def check_options(
    workdir: str | os.PathLike, kind: str, function: Callable, options: Iterable[str]
) -> None:
    """Checks that a kind of run has the given options.

    Args:
      workdir: the run's folder, for the message.
      kind: name of the kind of run, for the message.
      function: a function whose keyword-only arguments are the kind's options.
      options: names of the options to check.

    Raises:
      ValueError: the kind does not have an option; the message lists those that it has.
    """
    parameters = inspect.signature(function).parameters.values()
    valid = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    valid = [name for name in valid if name not in ("workdir", "step", "progress")]
    for name in options:
        if name not in valid:
            shown = [one for one in valid if one not in _OF_PYTHON]
            listed = ", ".join(shown) or "no option"
            raise ValueError(f"{name}: {workdir} is a run of {kind}, which takes {listed}")
