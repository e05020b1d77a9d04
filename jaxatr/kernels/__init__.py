"""Operations whose algorithm is chosen per problem, direction and platform."""

from jaxatr.kernels import fusion
from jaxatr.kernels.ops import recurrent
from jaxatr.kernels.ops.batch_norm import batch_norm, batch_statistics
from jaxatr.kernels.ops.convolution import convolution
from jaxatr.kernels.ops.pooling import max_pool
from jaxatr.kernels.ops.recurrent import gru, lstm, rnn
from jaxatr.kernels.outline import outlined

__all__ = [
    "batch_norm",
    "batch_statistics",
    "convolution",
    "fusion",
    "gru",
    "lstm",
    "max_pool",
    "outlined",
    "recurrent",
    "rnn",
]
