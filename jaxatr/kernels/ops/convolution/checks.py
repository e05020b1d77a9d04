"""Argument checks of the convolutions."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxatr.kernels.device import of_platform
from jaxatr.kernels.ops.checks import check_algorithm_name
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.convolution.solvers import SOLVERS
from jaxatr.typing import Array


def as_arrays(x: Any, w: Any, last: str) -> tuple[Array, Array]:
    """Returns ``x`` and ``w`` as jax arrays; jax narrows some NumPy types, such as float64.

    Args:
      x: images or sequences.
      w: the kernel.
      last: description of the last two axes of ``w``, for the message.

    Raises:
      ValueError: one is not an array, or their ranks or types do not fit together.
    """
    for name, array in (("x", x), ("w", w)):
        if not hasattr(array, "dtype"):
            raise ValueError(f"{name}: got a {type(array).__name__}, wanted an array")
    x, w = jnp.asarray(x), jnp.asarray(w)
    if jnp.ndim(x) not in (3, 4) or jnp.ndim(w) != jnp.ndim(x):
        raise ValueError(
            f"x: got shape {jnp.shape(x)}, and w: got shape {jnp.shape(w)}; wanted [b, h, w, c] "
            f"and [kh, kw, {last}], or [b, t, c] and [k, {last}]"
        )
    if x.dtype != w.dtype:
        raise ValueError(f"w: got {w.dtype.name}, wanted the type of x, {x.dtype.name}")
    return x, w


def check_groups(channels: int, features: int, depth: int, groups: int) -> None:
    """Raises a ``ValueError`` unless channels and features divide into the groups."""
    if groups < 1 or channels % groups or features % groups:
        raise ValueError(
            f"groups: got {groups}, wanted a divisor of x's {channels} channels "
            f"and w's {features} features"
        )
    if depth * groups != channels:
        raise ValueError(
            f"w: got {depth} input channels, wanted {channels // groups} "
            f"(x's {channels} channels in {groups} groups)"
        )


def check_algorithm(problem: ConvProblem, name: str) -> None:
    """Raises a ``ValueError`` unless the algorithm exists and can compute the problem."""
    check_algorithm_name(name, SOLVERS)
    device = of_platform(jax.default_backend())
    if name != "auto" and not SOLVERS[name].applies(problem, device):
        fit = [other for other, solver in SOLVERS.items() if solver.applies(problem, device)]
        raise ValueError(f"algorithm: {name!r} cannot compute {problem}, but {fit} can")
