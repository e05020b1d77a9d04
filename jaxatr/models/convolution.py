"""Convolution as a layer, computed by the algorithm that :mod:`jaxatr.kernels` chooses."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxatr import kernels
from jaxatr.typing import Array

Padding = Literal["same", "even"]
"""Distribution of the zero padding: ``"same"`` puts an odd zero at the bottom and right, like
TensorFlow; ``"even"`` pads both sides equally, like PyTorch. They differ for stride 2 and even
sizes."""


def _convolved(
    x: Array,
    kernel: Array,
    strides: Sequence[int],
    padding: Any,
    *,
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    dimension_numbers: Any,
    feature_group_count: int,
    precision: Any,
) -> Array:
    """Computes a convolution of flax by a kernel of this package if there is one for it.

    XLA computes the others: over three or more axes, with dilated inputs, of numbers that are not
    floating-point, with padding that crops, or with a stated precision.
    """
    axes, named = x.ndim - 2, isinstance(padding, str)
    ours = (
        axes in (1, 2)
        and precision is None
        and jnp.issubdtype(x.dtype, jnp.floating)
        and set(lhs_dilation) == {1}
        and (padding in ("SAME", "VALID") if named else min(map(min, padding)) >= 0)
    )
    if not ours:
        return jax.lax.conv_general_dilated(
            x,
            kernel,
            strides,
            padding,
            lhs_dilation=lhs_dilation,
            rhs_dilation=rhs_dilation,
            dimension_numbers=dimension_numbers,
            feature_group_count=feature_group_count,
            precision=precision,
        )
    options: dict[str, Any] = {
        "stride": tuple(strides),
        "dilation": tuple(rhs_dilation),
        "padding": padding if named else tuple(tuple(pair) for pair in padding),
    }
    if axes == 1:  # a sequence's options are numbers
        options = {
            name: value if isinstance(value, str) else value[0] for name, value in options.items()
        }
    return kernels.convolution(x, kernel, groups=feature_group_count, **options)


class QuickParameters(nn.Module):
    """A layer whose parameters are compared with the shape that it asks for.

    flax traces the initialisation of every parameter in every trace of a network, only for its
    shape, which takes longer than the layer itself.
    """

    @nn.nowrap
    def param(self, name: str, init_fn: Callable[..., Any], *init_args: Any, **options: Any) -> Any:
        """Returns a parameter; ``init_args`` begin with its shape."""
        if self.has_variable("params", name):
            value = self.get_variable("params", name)
            if getattr(value, "shape", None) == tuple(init_args[0]):
                return value
        # Also raises an error about the shape, and takes a parameter out of its metadata.
        return super().param(name, init_fn, *init_args, **options)


def _chosen() -> Callable[..., Array]:
    return _convolved


class Conv(QuickParameters, nn.Conv):
    """``flax.linen.Conv`` with the same arguments and parameters, on this package's kernels.

    The algorithm of the forward pass and of each gradient is chosen as in
    :func:`jaxatr.kernels.convolution`. XLA computes convolutions over three or more axes, with
    dilated inputs or padding that crops, of integers, and with a stated ``precision``.
    """

    conv_general_dilated_cls: Any = _chosen
    promote_dtype: Any = nn.Conv.promote_dtype  # flax's annotation cannot be checked as it runs


def square(
    features: int,
    size: int = 1,
    stride: int = 1,
    groups: int = 1,
    *,
    padding: Padding = "even",
    dtype: Any = jnp.float32,
    name: str | None = None,
) -> Conv:
    """Returns a bias-free square convolution to a side of ``ceil(side / stride)``.

    Parameters are kept in float32; the product is computed in ``dtype``. The initialisation is that
    of He et al. (2015), where the fan counts the connections within a group only.
    """
    return Conv(
        features,
        (size, size),
        stride,
        "SAME" if padding == "same" else (size - 1) // 2,
        feature_group_count=groups,
        use_bias=False,
        dtype=dtype,
        kernel_init=nn.initializers.variance_scaling(2.0 * groups, "fan_out", "normal"),
        name=name,
    )
