"""Operations whose algorithm is chosen per problem, direction and device."""

from jaxatr.kernels import fusion
from jaxatr.kernels.choosing import Choices, choices, collected
from jaxatr.kernels.find import Performance, find
from jaxatr.kernels.freezing import freeze
from jaxatr.kernels.ops import recurrent
from jaxatr.kernels.ops.batch_norm import batch_norm, batch_statistics
from jaxatr.kernels.ops.convolution import convolution, transposed_convolution
from jaxatr.kernels.ops.pooling import average_pool, max_pool
from jaxatr.kernels.ops.recurrent import gru, lstm, rnn
from jaxatr.kernels.ops.response_norm import local_response_norm
from jaxatr.kernels.outline import outlined

__all__ = [
    "Choices",
    "Performance",
    "average_pool",
    "batch_norm",
    "batch_statistics",
    "choices",
    "collected",
    "convolution",
    "find",
    "freeze",
    "fusion",
    "gru",
    "local_response_norm",
    "lstm",
    "max_pool",
    "outlined",
    "recurrent",
    "rnn",
    "transposed_convolution",
]
