"""The one way in which per-example values become a mean, of one device's batch or of all."""

import jax
import jax.numpy as jnp

from jaxatr.typing import Array, ArrayLike, Bool, Float, Shaped


def masked_mean(
    values: Float[ArrayLike, "..."],
    mask: Bool[ArrayLike, "..."],
    *,
    axis_name: str | None = None,
) -> Float[Array, ""]:
    """Returns the mean of the selected values; 0, with zero gradient, where none is selected.

    Values that are not selected may be anything, NaN included.

    Args:
      values: any shape.
      mask: of that shape; which values are selected.
      axis_name: under ``pmap``, the axis over which sum and count are added up first: every device
        gets the mean of the global batch.

    >>> float(masked_mean(jnp.array([1.0, 3.0, jnp.nan]), jnp.array([True, True, False])))
    2.0
    """
    total = over_devices(jnp.sum(jnp.where(mask, values, 0)), axis_name)
    return total / jnp.maximum(over_devices(jnp.sum(mask), axis_name), 1)


def over_devices(total: Shaped[Array, ""], axis_name: str | None) -> Shaped[Array, ""]:
    """Returns the sum over the devices of a ``pmap`` axis; ``total`` itself without an axis."""
    return total if axis_name is None else jax.lax.psum(total, axis_name)


def masked_moments(
    values: Float[ArrayLike, "..."],
    mask: Bool[ArrayLike, "..."],
    *,
    axis_name: str | None = None,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Returns mean and population variance of the selected values; zeros where none is selected.

    The variance is taken in a second pass around the mean, and so survives a mean that is large
    beside it.

    Args:
      values: any shape.
      mask: of that shape; which values are selected.
      axis_name: as :func:`masked_mean` has it.

    >>> mean, variance = masked_moments(jnp.array([1.0, 3.0]), jnp.array([True, True]))
    >>> float(mean), float(variance)
    (2.0, 1.0)
    """
    mean = masked_mean(values, mask, axis_name=axis_name)
    deviations = jnp.where(mask, values, mean) - mean  # masked before squaring: 0 * NaN is NaN
    return mean, masked_mean(jnp.square(deviations), mask, axis_name=axis_name)
