"""A convolution, with the letters of MIOpen's driver.

python -m jaxatr.tune conv -n 32 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 --direction=weight
"""

from collections.abc import Sequence
from typing import get_args

from absl import flags

from jaxatr.kernels.ops.convolution.problem import Direction, Problem
from jaxatr.tuning import driver, letters

_LETTERS: letters.Letters = {
    **letters.IMAGES,
    "c": (3, 1, "channels of an image"),
    "k": (32, 1, "channels of the result"),
    "y": (3, 1, "rows of the kernel"),
    "x": (3, 1, "columns of the kernel"),
    "u": (1, 1, "stride, rows"),
    "v": (1, 1, "stride, columns"),
    "p": (0, 0, "padding, rows"),
    "q": (0, 0, "padding, columns"),
    "l": (1, 1, "dilation, rows"),
    "j": (1, 1, "dilation, columns"),
    "g": (1, 1, "groups"),
}
# The directions of a transposed convolution are those of the convolution that takes its result
# back, the first two exchanged.
_OF_TRANSPOSED: dict[Direction, Direction] = {
    "forward": "data",
    "data": "forward",
    "weight": "weight",
}


def define_flags() -> None:
    """Defines the sub-command's flags."""
    letters.define(_LETTERS, [*letters.FLOATS, "int8"])
    letters.define_direction(get_args(Direction))
    flags.DEFINE_enum("mode", "conv", ["conv", "trans"], "A convolution or a transposed one.")
    driver.define_flags()


def main(arguments: Sequence[str]) -> int:
    """Lists, verifies and times what computes the convolution."""
    asked, transposed = flags.FLAGS.direction, flags.FLAGS.mode == "trans"
    directions: list[Direction] = letters.directions(get_args(Direction))
    if flags.FLAGS.dtype == "int8":
        if asked not in ("all", "forward") or transposed:
            raise ValueError(
                f"--direction: got {asked} of {flags.FLAGS.mode}, and int8 has the forward "
                "product alone, of a convolution"
            )
        directions = ["forward"]
    make = _transposed if transposed else _problem
    return driver.drive_all([make(direction) for direction in directions], arguments)


def _problem(direction: Direction) -> Problem:
    n, c, h, w, k, *rest = letters.numbers(_LETTERS)
    problem = _made(direction, (n, h, w, c), k, rest)
    if min(problem.y_shape[1:3]) < 1:
        raise ValueError(f"-H and -W: got {h} and {w}, smaller than the kernel: no result is left")
    return problem


def _transposed(direction: Direction) -> Problem:
    n, c, h, w, k, *rest = letters.numbers(_LETTERS)
    y, x, u, v, p, q, l, j, _ = rest  # noqa: E741
    sides = (h - 1) * u - 2 * p + (y - 1) * l + 1, (w - 1) * v - 2 * q + (x - 1) * j + 1
    if min(sides) < 1:
        raise ValueError(f"-p and -q: got {p} and {q}: no result is left")
    return _made(_OF_TRANSPOSED[direction], (n, *sides, k), c, rest)


def _made(direction: Direction, x_shape, features: int, rest: Sequence[int]) -> Problem:
    y, x, u, v, p, q, l, j, g = rest  # noqa: E741
    if x_shape[3] % g or features % g:
        _, c, _, _, k, *_ = letters.numbers(_LETTERS)
        raise ValueError(f"-g: got {g}, wanted a divisor of -c {c} and -k {k}")
    w_shape = (y, x, x_shape[3] // g, features)
    edges = ((p, p), (q, q))
    return Problem(direction, x_shape, w_shape, (u, v), edges, (l, j), g, flags.FLAGS.dtype)
