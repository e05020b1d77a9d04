"""The gates of an LSTM or GRU on a tile, as the epilogue of its recurrent product."""

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


def update_gru(
    s: list[Array], own: Float[Array, "m u"], inner: Float[Array, "m u"], h: Float[Array, "m u"]
) -> Float[Array, "m u"]:
    """Computes ``h`` of a GRU whose reset gate acts after the recurrent product.

    Args:
      s: the sums of the gates r and z, ``[m, u]`` each.
      own: the input's part of the candidate.
      inner: the state's part of the candidate.
      h: the state before the step.
    """
    r, z = (ACTIVATIONS["sigmoid"](a) for a in s)
    return (1 - z) * jnp.tanh(own + r * inner) + z * h


def grouped(
    matrix: Float[Array, "*rows columns"], units: int, gates: int = GATES
) -> Float[Array, "*rows columns"]:
    """Reorders the gates' columns from (gate, unit) to (block of units, gate, unit in the block).

    A tile of the product then holds all gates of its ``units`` units.
    """
    *rows, columns = matrix.shape
    split = matrix.reshape(*rows, gates, columns // (gates * units), units)
    return jnp.swapaxes(split, -3, -2).reshape(matrix.shape)
