"""Two-dimensional convolution with an algorithm chosen per problem, direction and platform."""

from jaxatr.kernels.ops.convolution.api import convolution
from jaxatr.kernels.ops.convolution.problem import Problem

__all__ = ["Problem", "convolution"]
