"""Measures a convolution, with the flags of MIOpen's driver.

jaxatr tune conv -n 32 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 --direction=weight
"""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from absl import flags

from jaxatr.kernels.ops.convolution.problem import ConvProblem, Direction
from jaxatr.kernels.ops.windows import Shape
from jaxatr.kernels.options import FLOATS, IMAGES, Option
from jaxatr.tuning import driver, options

_OPTIONS = {
    **IMAGES,
    "c": Option(3, "channels of an image", 1),
    "k": Option(32, "channels of the result", 1),
    "y": Option(3, "rows of the kernel", 1),
    "x": Option(3, "columns of the kernel", 1),
    "u": Option(1, "stride, rows", 1),
    "v": Option(1, "stride, columns", 1),
    "p": Option(0, "padding, rows", 0),
    "q": Option(0, "padding, columns", 0),
    "l": Option(1, "dilation, rows", 1),
    "j": Option(1, "dilation, columns", 1),
    "g": Option(1, "groups", 1),
    "mode": Option("conv", "A convolution or a transposed one.", choices=("conv", "trans")),
}
# The directions of a transposed convolution, as directions of the convolution that maps its result
# back to its input.
_OF_TRANSPOSED: dict[Direction, Direction] = {
    "forward": "data",
    "data": "forward",
    "weight": "weight",
}


def define_flags() -> None:
    """Defines the sub-command's flags."""
    options.define(_OPTIONS, dtypes=[*FLOATS, "int8"], directions=get_args(Direction))
    driver.define_flags()


def main(arguments: Sequence[str]) -> int:
    """Lists, verifies and times the solvers of the convolution."""
    asked, transposed = flags.FLAGS.direction, flags.FLAGS.mode == "trans"
    directions: list[Direction] = options.directions(get_args(Direction))
    if flags.FLAGS.dtype == "int8":
        if asked not in ("all", "forward") or transposed:
            raise ValueError(
                f"--dtype=int8: got --direction={asked} --mode={flags.FLAGS.mode}, but int8 "
                "supports only --direction=forward --mode=conv"
            )
        directions = ["forward"]
    make = _transposed if transposed else _problem
    return driver.drive_all([make(direction) for direction in directions], arguments)


def _problem(direction: Direction) -> ConvProblem:
    given = options.given(_OPTIONS)
    n, c, h, w = (given[name] for name in "ncHW")
    problem = _made(direction, (n, h, w, c), given["k"], given)
    if min(problem.y_shape[1:3]) < 1:
        raise ValueError(f"-H and -W: got {h} and {w}, smaller than the kernel: no result remains")
    return problem


def _transposed(direction: Direction) -> ConvProblem:
    given = options.given(_OPTIONS)
    rows, columns = (
        (given[size] - 1) * given[stride] - 2 * given[pad] + (given[taps] - 1) * given[dilation] + 1
        for size, stride, pad, taps, dilation in ("Hupyl", "Wvqxj")
    )
    if min(rows, columns) < 1:
        raise ValueError(f"-p and -q: got {given['p']} and {given['q']}: no result remains")
    return _made(
        _OF_TRANSPOSED[direction], (given["n"], rows, columns, given["k"]), given["c"], given
    )


def _made(
    direction: Direction, x_shape: Shape, features: int, given: Mapping[str, Any]
) -> ConvProblem:
    y, x, u, v, p, q, l, j, g = (given[name] for name in "yxuvpqljg")  # noqa: E741
    if x_shape[3] % g or features % g:
        raise ValueError(f"-g: got {g}, wanted a divisor of -c {given['c']} and -k {given['k']}")
    w_shape = (y, x, x_shape[3] // g, features)
    edges = ((p, p), (q, q))
    return ConvProblem(direction, x_shape, w_shape, (u, v), edges, (l, j), g, flags.FLAGS.dtype)
