"""A softmax.

python -m jaxatr.tune softmax -n 32 -c 1000 -H 1 -W 1 --mode=channel --log
"""

from collections.abc import Sequence
from typing import get_args

from absl import flags

from jaxatr.kernels.contrib.softmax import Mode, Problem
from jaxatr.tuning import driver, letters


def define_flags() -> None:
    """Defines the sub-command's flags."""
    letters.define(letters.IMAGES)
    letters.define_direction()
    modes = list(get_args(Mode))
    flags.DEFINE_enum("mode", "channel", modes, "What sums to one: of an example, or of a pixel.")
    flags.DEFINE_bool("log", False, "The logarithm of the softmax.")
    driver.define_flags()


def main(arguments: Sequence[str]) -> int:
    """Lists, verifies and times what computes the softmax."""
    given = flags.FLAGS.mode, flags.FLAGS.log, letters.images(), flags.FLAGS.dtype
    problems = [Problem(direction, *given) for direction in letters.directions()]
    return driver.drive_all(problems, arguments)
