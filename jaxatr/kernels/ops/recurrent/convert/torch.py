"""Conversion of weights from and to state dicts of ``torch.nn.LSTM``, ``GRU`` and ``RNN``."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxatr.kernels.ops.recurrent.convert.order import OURS, TORCH, module_of, reordered
from jaxatr.kernels.ops.recurrent.problem import Cell, check_cell
from jaxatr.kernels.ops.recurrent.weights import Params, Weights
from jaxatr.typing import ArrayLike


def from_torch(cell: Cell, state: Mapping[str, ArrayLike]) -> tuple[tuple[Weights, ...], ...]:
    """Returns ``params[layer][direction]`` of a torch module.

    Args:
      cell: ``"lstm"``, ``"gru"``, or the nonlinearity of an ``nn.RNN``.
      state: the module's state dict as NumPy arrays: ``weight_ih_l0``, ``weight_hh_l0`` and, if it
        has biases, ``bias_ih_l0`` and ``bias_hh_l0``; the second direction has ``_reverse``
        appended.

    Raises:
      ValueError: the cell is unknown, the first layer is missing, or an LSTM projects its state.
    """
    check_cell(cell)
    if "weight_ih_l0" not in state:
        raise ValueError(f"state: no 'weight_ih_l0', got {sorted(state)[:8]}")
    if any(name.startswith("weight_hr") for name in state):
        raise ValueError("state: got 'weight_hr_l0', but a projected state is not supported")
    suffixes = [s for s in ("", "_reverse") if f"weight_ih_l0{s}" in state]
    arrays = {name: np.asarray(array) for name, array in state.items()}
    layers = itertools.takewhile(lambda k: f"weight_ih_l{k}" in arrays, itertools.count())
    return tuple(tuple(_one(cell, arrays, f"l{k}{s}") for s in suffixes) for k in layers)


def _one(cell: Cell, state: Mapping[str, np.ndarray], name: str) -> Weights:
    def ours(key: str) -> np.ndarray | None:
        array = state.get(f"{key}_{name}")
        return None if array is None else reordered(array.T, TORCH[cell], OURS[cell])

    w, r, b, second = (ours(key) for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    if r is None:
        raise ValueError(f"state: no 'weight_hh_{name}'")
    rb = None
    if b is not None and second is not None:
        b, rb = merged(cell, b, second)
    return Weights(w, r, b, rb)


def merged(cell: Cell, b: ArrayLike, second: ArrayLike) -> tuple[Any, Any]:
    """Merges the two biases per gate of other libraries into ``b`` and ``rb``."""
    if cell != "gru":
        return b + second, None
    rest = 2 * len(b) // 3
    return module_of(b).concatenate([b[:rest] + second[:rest], b[rest:]]), second[rest:]


def parted(cell: Cell, weights: Weights) -> tuple[np.ndarray, np.ndarray]:
    """Returns two biases per gate that :func:`merged` turns back into ``b`` and ``rb``."""
    b = np.zeros_like(weights.r[0]) if weights.b is None else np.asarray(weights.b)
    second = np.zeros_like(b)
    if cell == "gru" and weights.rb is not None:
        second[2 * len(b) // 3 :] = weights.rb
    return b, second


def to_torch(cell: Cell, params: Params) -> dict[str, np.ndarray]:
    """Returns the state dict of a torch module, as NumPy arrays.

    Torch has two biases per gate, although one suffices; the second is zero except for a GRU's
    candidate.

    Raises:
      ValueError: the cell is unknown, or a layer has no input matrix.
    """
    check_cell(cell)
    state: dict[str, np.ndarray] = {}
    for index, layer in enumerate(params):
        for suffix, weights in zip(("", "_reverse"), layer, strict=False):
            name = f"l{index}{suffix}"
            if weights.w is None:
                raise ValueError(f"params[{index}]: got no input matrix; torch's modules have one")
            parts = {"weight_ih": weights.w, "weight_hh": weights.r}
            if weights.b is not None or weights.rb is not None:
                parts["bias_ih"], parts["bias_hh"] = parted(cell, weights)
            for key, array in parts.items():
                array = reordered(np.asarray(array), OURS[cell], TORCH[cell])
                state[f"{key}_{name}"] = np.ascontiguousarray(array.T)
    return state
