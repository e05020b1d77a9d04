"""Pooling with an algorithm chosen per problem and direction."""

from jaxatr.kernels.ops.pooling.api import average_pool, max_pool
from jaxatr.kernels.ops.pooling.problem import PoolingProblem

__all__ = ["PoolingProblem", "average_pool", "max_pool"]
