"""Costs of the kernels, for XLA's scheduler and analyses, which cannot look into them."""

import math
from collections.abc import Iterable
from typing import Any

from jax.experimental import pallas as pl

from jaxatr.kernels.pallas.epilogue import Epilogue
from jaxatr.kernels.pallas.gates import GATES

TRANSCENDENTAL = ("elu", "sigmoid", "swish", "tanh")  # of the activations


def convolution(
    rows: int, w: Any, epilogue: Epilogue, arrays: Iterable[Any], again: int = 0
) -> pl.CostEstimate:
    """Returns the cost of a convolution with its epilogue.

    Args:
      rows: for which results are computed.
      w: the kernel, ``[..., c, n]``.
      epilogue: what follows.
      arrays: all operands and results.
      again: bytes that are read more than once.
    """
    return pl.CostEstimate(
        flops=2 * rows * math.prod(w.shape),
        transcendentals=rows * w.shape[-1] * (epilogue.activation in TRANSCENDENTAL),
        bytes_accessed=sum(map(_bytes, arrays)) + again,
    )


def lstm(h: Any, r: Any, part: Any, saved: int, again: int = 0) -> pl.CostEstimate:
    """Returns the cost of an LSTM's step.

    Args:
      h: the state, ``[b, h]``.
      r: the recurrent matrix.
      part: the input's part of the gates, of one step.
      saved: how many arrays of gates are written, in float32 as the cell's state.
      again: bytes that are read more than once.
    """
    return pl.CostEstimate(
        flops=2 * h.size * r.shape[1],
        transcendentals=(GATES + 1) * h.size,
        bytes_accessed=2 * _bytes(h) + _bytes(r) + _bytes(part) + 4 * h.size * (2 + saved) + again,
    )


def _bytes(array: Any) -> int:
    return array.size * array.dtype.itemsize
