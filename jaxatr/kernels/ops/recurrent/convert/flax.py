"""Conversion of weights from and to flax's recurrent cells."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from jaxatr.kernels.ops.recurrent.problem import Cell, check_cell
from jaxatr.kernels.ops.recurrent.weights import Weights

# flax's names of the dense layers of the input and of the state, in the order of our blocks.
_INPUT = {"lstm": ("ii", "if", "io", "ig"), "gru": ("ir", "iz", "in"), "tanh": ("i",)}
_STATE = {"lstm": ("hi", "hf", "ho", "hg"), "gru": ("hr", "hz", "hn"), "tanh": ("h",)}


def from_flax(cell: Cell, params: Mapping[str, Any]) -> Weights:
    """Returns the weights of one flax cell.

    Args:
      cell: ``"lstm"`` for ``OptimizedLSTMCell`` or ``LSTMCell``, ``"gru"`` for ``GRUCell``,
        ``"tanh"`` or ``"relu"`` for ``SimpleCell``.
      params: the cell's parameters, ``{"ii": {"kernel": ...}, ...}``.

    Raises:
      ValueError: the cell is unknown, or some of its parameters are missing.
    """
    inputs, states = _names(cell)
    missing = sorted({*inputs, *states} - set(params))
    if missing:
        raise ValueError(f"params: no {missing}, wanted the parameters of flax's {cell} cell")
    hidden = params[states[0]]["kernel"].shape[0]
    with_bias = states if cell == "lstm" else inputs
    has_bias = "bias" in params[with_bias[0]]
    return Weights(
        w=jnp.concatenate([params[name]["kernel"] for name in inputs], axis=-1),
        r=jnp.concatenate([params[name]["kernel"] for name in states], axis=-1),
        b=jnp.concatenate([params[name]["bias"] for name in with_bias]) if has_bias else None,
        rb=params["hn"].get("bias", jnp.zeros(hidden)) if cell == "gru" else None,
    )


def to_flax(cell: Cell, weights: Weights) -> dict[str, dict[str, Any]]:
    """Returns the parameters of a flax cell; the inverse of :func:`from_flax`.

    Raises:
      ValueError: the cell is unknown, or the weights have no input matrix.
    """
    inputs, states = _names(cell)
    if weights.w is None:
        raise ValueError("weights.w: got None, but flax's cells have an input matrix")
    columns, hidden = weights.r.shape[1], weights.r.shape[0]
    bias = jnp.zeros(columns, weights.r.dtype) if weights.b is None else weights.b
    tree: dict[str, dict[str, Any]] = {}
    for names, matrix in ((inputs, weights.w), (states, weights.r)):
        blocks = jnp.split(jnp.asarray(matrix), len(names), axis=-1)
        tree |= {name: {"kernel": block} for name, block in zip(names, blocks, strict=True)}
    with_bias = states if cell == "lstm" else inputs
    for name, block in zip(with_bias, jnp.split(jnp.asarray(bias), len(with_bias)), strict=True):
        tree[name]["bias"] = block
    if cell == "gru":
        tree["hn"]["bias"] = jnp.zeros(hidden, bias.dtype) if weights.rb is None else weights.rb
    return tree


def _names(cell: Cell) -> tuple[tuple[str, ...], tuple[str, ...]]:
    check_cell(cell)
    name = "tanh" if cell == "relu" else cell
    return _INPUT[name], _STATE[name]
