"""XLA's convolution operation and the gradients that jax derives from it."""

import jax

from jaxatr.kernels.device import Device
from jaxatr.kernels.ops.convolution.problem import ConvProblem, Pair
from jaxatr.kernels.solver import Solver
from jaxatr.typing import Array


def run(problem: ConvProblem, a: Array, b: Array) -> Array:
    """Computes any direction."""

    padding = [_uncropped(problem, axis) for axis in (0, 1)]
    wider = None if problem.result_dtype == problem.dtype else problem.result_dtype

    def forward(x: Array, w: Array) -> Array:
        return jax.lax.conv_general_dilated(
            x,
            w,
            problem.stride,
            padding,
            rhs_dilation=problem.dilation,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=problem.groups,
            preferred_element_type=wider,
        )

    if problem.direction == "forward":
        return forward(a, b)
    unknown = jax.ShapeDtypeStruct(problem.result_shape, a.dtype)
    if problem.direction == "data":
        (result,) = jax.linear_transpose(lambda x: forward(x, b), unknown)(a)
    else:
        (result,) = jax.linear_transpose(lambda w: forward(a, w), unknown)(b)
    return result


def _uncropped(problem: ConvProblem, axis: int) -> Pair:
    """Returns the padding without cropping unread pixels, for which XLA would copy the image."""
    low, high = problem.padding[axis]
    reach = (problem.w_shape[axis] - 1) * problem.dilation[axis] + 1
    unread = (problem.x_shape[1 + axis] + low + high - reach) % problem.stride[axis]
    free = problem.stride[axis] - 1 - unread  # with more pixels there would be another window
    return low, max(high, min(0, high + free))


class XLA(Solver):
    """Solves everything, on every device, with an unknown workspace."""

    name = "xla"
    version = 2  # crops only pixels that a window would read
    run = staticmethod(run)

    def applies(self, problem: ConvProblem, device: Device) -> bool:
        """Returns True."""
        return True

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Returns 0, because XLA's workspace is unknown."""
        return 0


PART = XLA()
