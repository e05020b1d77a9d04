"""A tensor operation, ``op(alpha1 a, alpha2 b) + beta c``.

python -m jaxatr.tune tensor -n 32 -c 64 -H 56 -W 56 --name=mul --shared=nHW
"""

from collections.abc import Sequence
from typing import get_args

from absl import flags

from jaxatr.kernels.contrib.tensor import Name, Problem
from jaxatr.tuning import driver, letters


def define_flags() -> None:
    """Defines the sub-command's flags."""
    letters.define(letters.IMAGES)
    letters.define_direction()
    flags.DEFINE_enum("name", "add", list(get_args(Name)), "The operation.")
    flags.DEFINE_string("shared", "", "Letters of the axes along which b has one element.")
    for name, default in (("alpha1", 1.0), ("alpha2", 1.0), ("beta", 0.0)):
        flags.DEFINE_float(name, default, "See the formula.")
    driver.define_flags()


def main(arguments: Sequence[str]) -> int:
    """Lists, verifies and times what computes the operation."""
    flag, shape = flags.FLAGS, letters.images()
    if stray := set(flag.shared) - set("nHWc"):
        raise ValueError(f"--shared: got {sorted(stray)}, wanted some of the letters nHWc")
    other = tuple(
        1 if letter in flag.shared else n for letter, n in zip("nHWc", shape, strict=True)
    )
    scales = flag.alpha1, flag.alpha2, flag.beta
    problems = [
        Problem(direction, flag.name, shape, other, scales, flag.dtype)
        for direction in letters.directions()
    ]
    return driver.drive_all(problems, arguments)
