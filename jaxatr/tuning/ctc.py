"""A CTC loss.

python -m jaxatr.tune ctc -n 32 -t 100 -L 20 -k 29
"""

from collections.abc import Sequence

from absl import flags

from jaxatr.kernels.contrib.ctc import Problem
from jaxatr.tuning import driver, letters

_SIZES: letters.Letters = {
    "n": (32, 1, "sequences"),
    "t": (50, 2, "steps of the longest"),
    "L": (20, 1, "labels of the longest, at most half of its steps"),
    "k": (29, 2, "classes, the blank among them"),
}


def define_flags() -> None:
    """Defines the sub-command's flags."""
    letters.define(_SIZES)
    letters.define_direction()
    driver.define_flags()


def main(arguments: Sequence[str]) -> int:
    """Lists, verifies and times what computes the loss."""
    n, t, labels, k = letters.numbers(_SIZES)
    if 2 * labels > t:
        raise ValueError(f"-L: got {labels}, wanted at most half of -t {t}")
    given = n, t, labels, k, flags.FLAGS.dtype
    problems = [Problem(direction, *given) for direction in letters.directions()]
    return driver.drive_all(problems, arguments)
