"""A pooling.

python -m jaxatr.tune pool -n 32 -c 64 -H 56 -W 56 -y 3 -x 3 -p 1 -q 1 -u 2 -v 2 --mode=max
"""

from collections.abc import Sequence
from typing import get_args

from absl import flags

from jaxatr.kernels.ops.pooling.problem import Mode, Problem
from jaxatr.tuning import driver, letters

_WINDOW: letters.Letters = {
    "y": (2, 1, "rows of a window"),
    "x": (2, 1, "columns of a window"),
    "u": (2, 1, "stride, rows"),
    "v": (2, 1, "stride, columns"),
    "p": (0, 0, "padding, rows"),
    "q": (0, 0, "padding, columns"),
}


def define_flags() -> None:
    """Defines the sub-command's flags."""
    letters.define({**letters.IMAGES, **_WINDOW})
    letters.define_direction()
    flags.DEFINE_enum("mode", "max", list(get_args(Mode)), "What is taken of a window.")
    driver.define_flags()


def main(arguments: Sequence[str]) -> int:
    """Lists, verifies and times what computes the pooling."""
    y, x, u, v, p, q = letters.numbers(_WINDOW)
    if p >= y or q >= x:
        raise ValueError(f"-p and -q: got {p} and {q}, wanted less than -y {y} and -x {x}")
    images, dtype, mode = letters.images(), flags.FLAGS.dtype, flags.FLAGS.mode
    problems = [
        Problem(direction, mode, images, (y, x), (u, v), ((p, p), (q, q)), dtype)
        for direction in letters.directions()
    ]
    if min(problems[0].y_shape[1:3]) < 1:
        raise ValueError(f"-H and -W: got {images[1]} and {images[2]}, smaller than the window")
    return driver.drive_all(problems, arguments)
