"""Masked means and moments of per-example values, on one device or over several."""

import chex
import jax
import jax.numpy as jnp

from jaxatr.losses.inputs import at_least_float32
from jaxatr.typing import Array, ArrayLike, Bool, Float, Shaped


def masked_mean(
    values: Float[ArrayLike, "..."],
    mask: Bool[ArrayLike, "..."],
    *,
    axis_name: str | None = None,
) -> Float[Array, ""]:
    """Computes the mean of the selected values; 0, with zero gradient, if none is selected.

    Values that are not selected may be NaN.

    Args:
      values: any shape.
      mask: mask of the selected values, of the same shape.
      axis_name: name of a ``pmap`` axis. Sum and count are then added up over its devices, and
        every device gets the mean over the global batch.

    >>> float(masked_mean(jnp.array([1.0, 3.0, jnp.nan]), jnp.array([True, True, False])))
    2.0
    """
    chex.assert_equal_shape([values, mask])
    values = at_least_float32(values)  # the sum of many values overflows float16
    total = over_devices(jnp.sum(jnp.where(mask, values, 0)), axis_name)
    count = jnp.maximum(over_devices(jnp.sum(mask), axis_name), 1)
    return total / count.astype(total.dtype)


def over_devices(total: Shaped[Array, ""], axis_name: str | None) -> Shaped[Array, ""]:
    """Sums ``total`` over the devices of a ``pmap`` axis; returns it unchanged without an axis."""
    return total if axis_name is None else jax.lax.psum(total, axis_name)


def masked_moments(
    values: Float[ArrayLike, "..."],
    mask: Bool[ArrayLike, "..."],
    *,
    axis_name: str | None = None,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Computes mean and population variance of the selected values; 0 if none is selected.

    The variance is computed around the mean in a second pass, so it is accurate even if the mean is
    much larger than the deviations.

    Args:
      values: any shape.
      mask: mask of the selected values, of the same shape.
      axis_name: name of a ``pmap`` axis, for the moments of the global batch.

    >>> mean, variance = masked_moments(jnp.array([1.0, 3.0]), jnp.array([True, True]))
    >>> float(mean), float(variance)
    (2.0, 1.0)
    """
    mean = masked_mean(values, mask, axis_name=axis_name)
    deviations = jnp.where(mask, values, mean) - mean  # masked before squaring: 0 * NaN is NaN
    return mean, masked_mean(jnp.square(deviations), mask, axis_name=axis_name)
