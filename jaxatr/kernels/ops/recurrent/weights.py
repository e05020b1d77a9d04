"""The weights of a recurrent network, as a tree of arrays."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from jaxatr.kernels.ops.recurrent.problem import GATES, Cell, check_cell
from jaxatr.typing import ArrayLike, Key


class Weights(NamedTuple):
    """The weights of one direction of one layer.

    The columns are in blocks of ``h``, one per gate: ``i, f, o, c~`` for an LSTM (the paper's
    eq. 11, with the three sigmoids adjacent), ``r, z, n`` for a GRU (reset, update, candidate).

    Attributes:
      w: ``[d, gates * h]``, the input matrix; None to add the input to each gate without a matrix
        (skip input), for which ``d`` must be ``h``.
      r: ``[h, gates * h]``, the recurrent matrix.
      b: ``[gates * h]``, the bias of the gates, or None.
      rb: ``[h]`` or None, for a GRU only: the bias of the candidate's recurrent product, added
        before the reset gate scales it. For the other gates it would only add to ``b``.
    """

    w: ArrayLike | None
    r: ArrayLike
    b: ArrayLike | None = None
    rb: ArrayLike | None = None


Params: TypeAlias = Sequence[Sequence[Weights]]


def init(
    key: Key,
    cell: Cell,
    inputs: int,
    hidden: int,
    *,
    layers: int = 1,
    bidirectional: bool = False,
    bias: bool = True,
    skip: bool = False,
    dtype: jax.typing.DTypeLike = jnp.float32,
) -> tuple[tuple[Weights, ...], ...]:
    """Draws the weights of a network: ``params[layer][direction]``, the forward direction first.

    Input matrices are LeCun normal, recurrent matrices are orthogonal per gate, and biases are
    zero, as in flax.

    Args:
      key: random key.
      cell: ``"lstm"``, ``"gru"``, ``"relu"`` or ``"tanh"``.
      inputs: features of the input.
      hidden: features of the state of each direction.
      layers: number of layers; each reads both directions of the one below.
      bidirectional: whether each layer also runs backwards in time.
      bias: whether the gates have biases.
      skip: whether the first layer's input is added to each gate without a matrix.
      dtype: type of the weights.

    Raises:
      ValueError: ``cell`` is unknown, or ``skip`` is set and ``inputs`` differs from ``hidden``.
    """
    check_cell(cell)
    if skip and inputs != hidden:
        raise ValueError(f"inputs: got {inputs}, wanted {hidden}, the state's size, with skip")
    directions, gates = 2 if bidirectional else 1, GATES[cell]
    normal, orthogonal = jax.nn.initializers.lecun_normal(), jax.nn.initializers.orthogonal()

    # The QR decomposition of the orthogonal initializer does not support half precision.
    wide = jnp.promote_types(dtype, jnp.float32)

    def one(key: Key, width: int, skip: bool) -> Weights:
        first, *rest = jax.random.split(key, 1 + gates)
        r = jnp.concatenate([orthogonal(k, (hidden, hidden), wide) for k in rest], axis=1)
        return Weights(
            w=None if skip else normal(first, (width, gates * hidden), dtype),
            r=r.astype(dtype),
            b=jnp.zeros(gates * hidden, dtype) if bias else None,
            rb=jnp.zeros(hidden, dtype) if bias and cell == "gru" else None,
        )

    keys = jax.random.split(key, (layers, directions))
    return tuple(
        tuple(
            one(key, directions * hidden if layer else inputs, skip and layer == 0) for key in row
        )
        for layer, row in enumerate(keys)
    )
