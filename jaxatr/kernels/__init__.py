"""Operations whose algorithm is chosen per problem, direction and platform."""

from jaxatr.kernels.convolution import convolution

__all__ = ["convolution"]
