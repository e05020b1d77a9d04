"""Recurrent networks with an algorithm chosen per problem."""

from jaxatr.kernels.ops.recurrent.api import gru, lstm, rnn
from jaxatr.kernels.ops.recurrent.convert import (
    from_flax,
    from_onnx,
    from_torch,
    to_flax,
    to_onnx,
    to_torch,
)
from jaxatr.kernels.ops.recurrent.problem import Cell, RecurrentProblem
from jaxatr.kernels.ops.recurrent.weights import Params, Weights, init

__all__ = [
    "Cell",
    "Params",
    "RecurrentProblem",
    "Weights",
    "from_flax",
    "from_onnx",
    "from_torch",
    "gru",
    "init",
    "lstm",
    "rnn",
    "to_flax",
    "to_onnx",
    "to_torch",
]
