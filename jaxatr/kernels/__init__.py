"""Operations whose algorithm is chosen per problem, direction and platform."""

from jaxatr.kernels.convolution import convolution
from jaxatr.kernels.outline import outlined
from jaxatr.kernels.pooling import max_pool

__all__ = ["convolution", "max_pool", "outlined"]
