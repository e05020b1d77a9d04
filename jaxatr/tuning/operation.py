"""The sub-commands of operations that describe their problems by options."""

from collections.abc import Sequence

from absl import flags

import jaxatr.kernels.contrib  # noqa: F401 - registers its operations
from jaxatr.kernels.options import Command
from jaxatr.kernels.solver import operations
from jaxatr.tuning import driver, options


def commands() -> dict[str, "OperationCommand"]:
    """Returns the sub-commands by name, one for each operation that has options."""
    known = [one.command for one in operations().values() if one.command is not None]
    return {one.name: OperationCommand(one) for one in sorted(known, key=lambda one: one.name)}


class OperationCommand:
    """A sub-command that lists, verifies and times the solvers of an operation's problems."""

    def __init__(self, command: Command):
        self._command = command
        self.__doc__ = command.summary  # as the docstring of a sub-command that is a module

    def define_flags(self) -> None:
        """Defines the sub-command's flags."""
        options.define(self._command.options)
        driver.define_flags()

    def main(self, arguments: Sequence[str]) -> int:
        """Lists, verifies and times the solvers of the problems that the flags describe."""
        values = options.given(self._command.options)
        problems = [
            self._command.problem(direction=direction, dtype=flags.FLAGS.dtype, **values)
            for direction in options.directions()
        ]
        return driver.drive_all(problems, arguments)
