"""XLA's own convolution operation, and its gradients as jax derives them."""

import jax

from jaxatr.kernels.ops.convolution.problem import Problem
from jaxatr.typing import Array


def applies(problem: Problem) -> bool:
    """Always."""
    del problem
    return True


def run(problem: Problem, a: Array, b: Array) -> Array:
    """Returns the result of any direction."""

    def forward(x: Array, w: Array) -> Array:
        return jax.lax.conv_general_dilated(
            x,
            w,
            problem.stride,
            problem.padding,
            rhs_dilation=problem.dilation,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=problem.groups,
        )

    if problem.direction == "forward":
        return forward(a, b)
    unknown = jax.ShapeDtypeStruct(problem.result_shape, a.dtype)
    if problem.direction == "data":
        (result,) = jax.linear_transpose(lambda x: forward(x, b), unknown)(a)
    else:
        (result,) = jax.linear_transpose(lambda w: forward(a, w), unknown)(b)
    return result
