"""Operations whose algorithm is chosen per problem, direction and device."""

from jaxatr.kernels.choosing import Choices, choices, collected
from jaxatr.kernels.find import Performance, find
from jaxatr.kernels.freezing import freeze
from jaxatr.kernels.ops.convolution import convolution
from jaxatr.kernels.ops.pooling import max_pool
from jaxatr.kernels.outline import outlined

__all__ = [
    "Choices",
    "Performance",
    "choices",
    "collected",
    "convolution",
    "find",
    "freeze",
    "max_pool",
    "outlined",
]
