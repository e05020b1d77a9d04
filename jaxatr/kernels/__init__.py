"""Operations whose algorithm is chosen per problem, direction and device.

:mod:`jaxatr.kernels.contrib` has further operations of MIOpen that no configuration uses; import
it by name.
"""

from jaxatr.kernels.choosing import Choices, choices, collected, freeze
from jaxatr.kernels.find import Performance, find
from jaxatr.kernels.inlining import outlined
from jaxatr.kernels.ops import recurrent
from jaxatr.kernels.ops.batch_norm import batch_norm, batch_statistics
from jaxatr.kernels.ops.convolution import convolution, transposed_convolution
from jaxatr.kernels.ops.pooling import average_pool, max_pool
from jaxatr.kernels.ops.recurrent import gru, lstm, rnn

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
    "gru",
    "lstm",
    "max_pool",
    "outlined",
    "recurrent",
    "rnn",
    "transposed_convolution",
]
