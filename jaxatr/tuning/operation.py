"""The sub-command of an operation that describes its problems by options."""

from collections.abc import Sequence

from absl import flags

import jaxatr.kernels.contrib  # noqa: F401 - makes its operations known
from jaxatr.kernels.options import Command
from jaxatr.kernels.solver import operations
from jaxatr.tuning import driver, options


def commands() -> dict[str, "OperationCommand"]:
    """Returns the sub-commands by name: one for each operation that has options."""
    found = [one.command for one in operations().values() if one.command is not None]
    return {one.name: OperationCommand(one) for one in sorted(found, key=lambda one: one.name)}


class OperationCommand:
    """Lists, verifies and times what computes the problems of an operation."""

    def __init__(self, command: Command):
        """Takes the operation's options."""
        self._command = command

    def define_flags(self) -> None:
        """Defines the sub-command's flags."""
        options.define(self._command.options)
        driver.define_flags()

    def main(self, arguments: Sequence[str]) -> int:
        """Makes the problems that the flags describe, and does with them what the flags say."""
        values = options.given(self._command.options)
        problems = [
            self._command.problem(direction=direction, dtype=flags.FLAGS.dtype, **values)
            for direction in options.directions()
        ]
        return driver.drive_all(problems, arguments)
