"""A convolution, with the letters of MIOpen's driver.

python -m jaxatr.tune conv -n 32 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 --direction=weight
"""

from collections.abc import Sequence
from typing import get_args

from absl import flags

from jaxatr.kernels.ops.convolution.problem import Direction, Problem
from jaxatr.tuning import driver

# Letter, default, meaning.
_LETTERS = {
    "n": (32, "images"),
    "c": (3, "channels of an image"),
    "H": (32, "rows of an image"),
    "W": (32, "columns of an image"),
    "k": (32, "channels of the result"),
    "y": (3, "rows of the kernel"),
    "x": (3, "columns of the kernel"),
    "u": (1, "stride, rows"),
    "v": (1, "stride, columns"),
    "p": (0, "padding, rows"),
    "q": (0, "padding, columns"),
    "l": (1, "dilation, rows"),
    "j": (1, "dilation, columns"),
    "g": (1, "groups"),
}
_LEAST = {"p": 0, "q": 0}
_DTYPES = ["float32", "bfloat16", "float16", "float64", "int8"]


def define_flags() -> None:
    """Defines the sub-command's flags."""
    for letter, (default, meaning) in _LETTERS.items():
        # absl's logging has a v of its own, short for verbosity.
        flags.DEFINE_integer(letter, default, meaning, allow_override=True)
    flags.DEFINE_enum("dtype", "float32", _DTYPES, "Type of the elements.")
    directions = [*get_args(Direction), "all"]
    flags.DEFINE_enum("direction", "all", directions, "The product or one of its gradients.")
    driver.define_flags()


def main(arguments: Sequence[str]) -> int:
    """Lists, verifies and times what computes the convolution."""
    if arguments:
        raise ValueError(f"got {arguments[0]!r}, which is no flag: write -n 32 or --n=32")
    asked = flags.FLAGS.direction
    directions: list[Direction] = [one for one in get_args(Direction) if asked in ("all", one)]
    if flags.FLAGS.dtype == "int8":
        if asked not in ("all", "forward"):
            raise ValueError(f"--direction: got {asked}, and int8 has the forward product alone")
        directions = ["forward"]
    wrong = sum(driver.drive(_problem(direction)) for direction in directions)
    return driver.EXIT_WRONG if wrong else 0


def _problem(direction: Direction) -> Problem:
    n, c, h, w, k, y, x, u, v, p, q, l, j, g = (_number(letter) for letter in _LETTERS)  # noqa: E741
    if c % g or k % g:
        raise ValueError(f"-g: got {g}, wanted a divisor of -c {c} and -k {k}")
    problem = Problem(
        direction,
        (n, h, w, c),
        (y, x, c // g, k),
        (u, v),
        ((p, p), (q, q)),
        (l, j),
        g,
        flags.FLAGS.dtype,
    )
    if min(problem.y_shape[1:3]) < 1:
        raise ValueError(f"-H and -W: got {h} and {w}, smaller than the kernel: no result is left")
    return problem


def _number(letter: str) -> int:
    value, least = getattr(flags.FLAGS, letter), _LEAST.get(letter, 1)
    if value < least:
        raise ValueError(f"-{letter}: got {value}, wanted at least {least}")
    return value
