"""Cost estimates of the kernels, for XLA's scheduler and cost analysis."""

import math
from collections.abc import Iterable
from typing import Any

from jax.experimental import pallas as pl

from jaxatr.kernels.pallas.epilogue import Epilogue
from jaxatr.kernels.pallas.gates import GATES

TRANSCENDENTAL = ("elu", "sigmoid", "swish", "tanh")  # activations with such a function


def convolution(
    rows: int, w: Any, epilogue: Epilogue, arrays: Iterable[Any], again: int = 0
) -> pl.CostEstimate:
    """Returns the cost of a convolution with its epilogue.

    Args:
      rows: number of rows of results.
      w: the kernel, ``[..., c, n]``.
      epilogue: the epilogue.
      arrays: all operands and results.
      again: bytes of repeated reads.
    """
    return pl.CostEstimate(
        flops=2 * rows * math.prod(w.shape),
        transcendentals=rows * w.shape[-1] * (epilogue.activation in TRANSCENDENTAL),
        bytes_accessed=sum(map(_bytes, arrays)) + again,
    )


def lstm(h: Any, r: Any, part: Any, saved: int, again: int = 0) -> pl.CostEstimate:
    """Returns the cost of one step of an LSTM.

    Args:
      h: the state, ``[b, h]``.
      r: the recurrent matrix.
      part: the input's part of the gates for one step.
      saved: number of float32 arrays of gates that are written.
      again: bytes of repeated reads.
    """
    return pl.CostEstimate(
        flops=2 * h.size * r.shape[1],
        transcendentals=(GATES + 1) * h.size,
        bytes_accessed=2 * _bytes(h) + _bytes(r) + _bytes(part) + 4 * h.size * (2 + saved) + again,
    )


def recurrent(arrays: Iterable[Any], r: Any, steps: int, batch: int) -> pl.CostEstimate:
    """Returns the cost of all steps of an LSTM or GRU, forward or backward.

    Args:
      arrays: all operands and results.
      r: the recurrent matrix, one block of columns per gate.
      steps: number of steps.
      batch: number of sequences.
    """
    return pl.CostEstimate(
        flops=2 * steps * batch * r.size,
        transcendentals=steps * batch * (r.shape[1] + r.shape[0]),
        bytes_accessed=sum(map(_bytes, arrays)),
    )


def _bytes(array: Any) -> int:
    return array.size * array.dtype.itemsize
