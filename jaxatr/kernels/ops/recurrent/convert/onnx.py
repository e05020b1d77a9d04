"""Conversion of weights from and to the inputs of ONNX's LSTM, GRU and RNN operators."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxatr.kernels.ops.recurrent.convert.order import ONNX, OURS, module_of, reordered
from jaxatr.kernels.ops.recurrent.convert.torch import merged, parted
from jaxatr.kernels.ops.recurrent.problem import Cell, check_cell
from jaxatr.kernels.ops.recurrent.weights import Weights
from jaxatr.typing import ArrayLike, Shaped


def from_onnx(
    cell: Cell,
    w: Shaped[ArrayLike, "directions columns d"],
    r: Shaped[ArrayLike, "directions columns h"],
    b: Shaped[ArrayLike, "directions two_columns"] | None = None,
) -> tuple[Weights, ...]:
    """Returns one layer, ``layer[direction]``, from an operator's inputs.

    ONNX stacks an LSTM's gates as i, o, f, c and a GRU's as z, r, h. A GRU with
    ``linear_before_reset = 0``, ONNX's default, is ``gru(..., reset="before")``. Peepholes (``P``)
    are not supported. NumPy arrays give NumPy arrays; jax's arrays may be traced.

    Args:
      cell: ``"lstm"``, ``"gru"``, or the activation of an RNN, ``"relu"`` or ``"tanh"``.
      w: the input ``W``.
      r: the input ``R``.
      b: the input ``B``, or None.

    Raises:
      ValueError: the cell is unknown.
    """
    check_cell(cell)
    layer = []
    for direction in range(len(w)):
        ours = [reordered(m[direction].T, ONNX[cell], OURS[cell]) for m in (w, r)]
        bias = rb = None
        if b is not None:
            halves = module_of(b).split(b[direction], 2)
            bias, rb = merged(cell, *(reordered(half, ONNX[cell], OURS[cell]) for half in halves))
        layer.append(Weights(ours[0], ours[1], bias, rb))
    return tuple(layer)


def to_onnx(
    cell: Cell, layer: Sequence[Weights]
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Returns an operator's inputs ``W``, ``R`` and ``B`` (None without biases) for one layer.

    Raises:
      ValueError: the cell is unknown, or the layer has no input matrix.
    """
    check_cell(cell)
    if any(weights.w is None for weights in layer):
        raise ValueError("layer: got no input matrix; ONNX's operators have one")

    def theirs(array: Any) -> np.ndarray:
        return reordered(np.asarray(array), OURS[cell], ONNX[cell])

    w, r = (np.stack([theirs(one[field]).T for one in layer]) for field in (0, 1))
    if all(one.b is None and one.rb is None for one in layer):
        return w, r, None
    biases = [np.concatenate([theirs(half) for half in parted(cell, one)]) for one in layer]
    return w, r, np.stack(biases)
