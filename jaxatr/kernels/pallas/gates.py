"""The gates of an LSTM on a tile, as the epilogue of its recurrent product."""

import jax.numpy as jnp

from jaxatr.kernels.activations import ACTIVATIONS
from jaxatr.typing import Array, Float

GATES = 4


def update(
    s: list[Array], c: Float[Array, "m u"]
) -> tuple[Float[Array, "m u"], Float[Array, "m u"], tuple[Array, ...]]:
    """Computes ``h``, ``c`` and ``(i, f, o, c~, tanh(c))`` (MIOpen, equations 5 to 10).

    Args:
      s: the sums of the gates i, f, o and c~, ``[m, u]`` each.
      c: the cell's state before the step.
    """
    i, f, o = (ACTIVATIONS["sigmoid"](a) for a in s[:3])
    candidate = jnp.tanh(s[3])
    c = f * c + i * candidate
    y = jnp.tanh(c)
    return o * y, c, (i, f, o, candidate, y)


def grouped(matrix: Float[Array, "*rows columns"], units: int) -> Float[Array, "*rows columns"]:
    """Reorders the gates' columns from (gate, unit) to (block of units, gate, unit in the block).

    A tile of the product then holds all gates of its ``units`` units.
    """
    *rows, columns = matrix.shape
    blocks = columns // (GATES * units)
    split = matrix.reshape(*rows, GATES, blocks, units)
    return jnp.swapaxes(split, -3, -2).reshape(matrix.shape)
