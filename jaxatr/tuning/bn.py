"""A batch norm.

python -m jaxatr.tune bn -n 32 -c 64 -H 56 -W 56 --mode=spatial --activation=relu [--notrain]
"""

from collections.abc import Sequence

from absl import flags

from jaxatr.kernels.activations import ACTIVATIONS
from jaxatr.kernels.ops.batch_norm import MODES
from jaxatr.kernels.ops.batch_norm.operation import Problem
from jaxatr.tuning import driver, letters


def define_flags() -> None:
    """Defines the sub-command's flags."""
    letters.define(letters.IMAGES)
    letters.define_direction()
    flags.DEFINE_enum("mode", "spatial", list(MODES), "Statistics per channel or per activation.")
    flags.DEFINE_bool("train", True, "By the batch's statistics; --notrain: by given ones.")
    flags.DEFINE_enum("activation", "none", sorted(ACTIVATIONS), "What follows the norm.")
    driver.define_flags()


def main(arguments: Sequence[str]) -> int:
    """Lists, verifies and times what computes the norm."""
    flag = flags.FLAGS
    given = flag.mode, flag.train, flag.activation, letters.images(), flag.dtype
    problems = [Problem(direction, *given) for direction in letters.directions()]
    return driver.drive_all(problems, arguments)
