"""One direction of one layer of a recurrent network.

python -m jaxatr.tune rnn -n 16 -k 25 -W 512 -H 512 --mode=lstm
"""

from collections.abc import Sequence

from absl import flags

from jaxatr.kernels.ops.recurrent.problem import CELLS, Problem
from jaxatr.tuning import driver, letters

_SIZES: letters.Letters = {
    "n": (32, 1, "sequences"),
    "k": (25, 1, "steps"),
    "W": (256, 1, "features of the input"),
    "H": (256, 1, "features of the state"),
}


def define_flags() -> None:
    """Defines the sub-command's flags."""
    letters.define(_SIZES)
    letters.define_direction()
    flags.DEFINE_enum("mode", "lstm", list(CELLS), "The cell.")
    flags.DEFINE_bool("skip", False, "The input goes into each gate as it is.")
    flags.DEFINE_bool("masked", False, "Sequences of different lengths.")
    flags.DEFINE_bool("before", False, "A GRU's reset gate acts before the product, as in ONNX.")
    driver.define_flags()


def main(arguments: Sequence[str]) -> int:
    """Lists, verifies and times what computes the layer."""
    flag = flags.FLAGS
    n, steps, width, hidden = letters.numbers(_SIZES)
    if flag.skip and width != hidden:
        raise ValueError(f"-W: got {width}, wanted -H {hidden} to --skip")
    if flag.before and flag.mode != "gru":
        raise ValueError(f"--before: is for a GRU, and the cell is {flag.mode}")
    problems = [
        Problem(
            flag.mode,
            steps,
            n,
            width,
            hidden,
            flag.skip,
            flag.masked,
            flag.dtype,
            not flag.before,
            direction,
        )
        for direction in letters.directions()
    ]
    return driver.drive_all(problems, arguments)
