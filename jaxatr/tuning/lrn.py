"""A local response norm.

python -m jaxatr.tune lrn -n 32 -c 96 -H 55 -W 55 -N 5 --mode=across
"""

from collections.abc import Sequence
from typing import get_args

from absl import flags

from jaxatr.kernels.contrib.response_norm import Mode, Problem
from jaxatr.tuning import driver, letters

_SIZE: letters.Letters = {"N": (5, 1, "neighbours along an axis, the place itself among them")}


def define_flags() -> None:
    """Defines the sub-command's flags."""
    letters.define({**letters.IMAGES, **_SIZE})
    letters.define_direction()
    flags.DEFINE_enum("mode", "across", list(get_args(Mode)), "Across channels or within one.")
    flags.DEFINE_float("alpha", 1e-4, "Weight of the mean square.")
    flags.DEFINE_float("beta", 0.75, "Exponent.")
    flags.DEFINE_float("k", 1.0, "Added to the mean square.")
    driver.define_flags()


def main(arguments: Sequence[str]) -> int:
    """Lists, verifies and times what computes the norm."""
    (size,) = letters.numbers(_SIZE)
    flag = flags.FLAGS
    given = flag.mode, letters.images(), size, flag.alpha, flag.beta, flag.k, flag.dtype
    problems = [Problem(direction, *given) for direction in letters.directions()]
    return driver.drive_all(problems, arguments)
