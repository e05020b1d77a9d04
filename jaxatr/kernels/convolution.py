"""Two-dimensional convolution (placeholder of the first hour: XLA's own form only)."""

import jax


def convolution(x, w, *, stride=1, padding=0, dilation=1, groups=1, algorithm="auto"):
    """Returns XLA's convolution of ``x`` (NHWC) with ``w`` (HWIO)."""
    pad = [(padding, padding)] * 2
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), pad, rhs_dilation=(dilation, dilation),
        dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups)
