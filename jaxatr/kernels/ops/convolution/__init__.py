"""Convolution with an algorithm chosen per problem, direction and platform."""

from jaxatr.kernels.ops.convolution.api import convolution, transposed_convolution
from jaxatr.kernels.ops.convolution.problem import ConvProblem

__all__ = ["ConvProblem", "convolution", "transposed_convolution"]
