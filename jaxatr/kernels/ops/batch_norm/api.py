"""Batch norm in the two modes of section IV.B of the MIOpen paper, with an activation.

There is no kernel of its own: the statistics are two reductions, the rest is elementwise, XLA fuses
it (with the activation) into one pass, and the derivative that jax takes of it fuses likewise. What
XLA cannot fuse, the norm of a convolution's result, is in :mod:`jaxatr.kernels.pallas`.
"""

import math
from functools import partial
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp

from jaxatr.kernels.activations import ACTIVATIONS, check_activation
from jaxatr.kernels.ops.channels import spread, totals
from jaxatr.typing import Array, Float

Mode: TypeAlias = Literal["spatial", "per_activation"]
MODES: tuple[Mode, ...] = ("spatial", "per_activation")


def batch_statistics(
    x: Float[Array, "b ... c"], *, mode: Mode = "spatial", axis_name: str | None = None
) -> tuple[Float[Array, "*dims"], Float[Array, "*dims"]]:
    """Returns mean and (biased) variance of a batch, float32 for shorter types.

    The variance is the mean square of what is left after the mean, so that features far from zero
    keep their digits; over several devices both are reduced in turn.

    Args:
      x: ``[b, ..., c]``.
      mode: ``"spatial"``, one value per channel (the last axis), or ``"per_activation"``, one per
        feature and place: only the batch axis is reduced.
      axis_name: an axis of ``pmap`` or ``vmap`` to reduce over as well.

    Raises:
      ValueError: the mode is unknown.
    """
    x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return _moments(_reduced(mode, x.ndim), axis_name, x)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _moments(axes: tuple[int, ...], axis_name: str | None, x: Array) -> tuple[Array, Array]:
    """Returns mean and variance in one pass, as differences from the mean of the first example.

    That is near the mean, or spreads the values itself: with ``b`` examples, the square of how far
    it is off is at most ``b`` times the variance.
    """
    if len(axes) < x.ndim - 1:
        near = x.mean(axes)
        first, second = jnp.zeros_like(near), jnp.mean((x - near) ** 2, axes)
    else:
        near = x[:1].mean(axes)
        from_near = x - near
        count = math.prod(x.shape[:-1])
        first, second = (total / count for total in totals(from_near, from_near**2))
    mean, variance = near + first, second - first**2
    if axis_name is None:
        return mean, variance
    whole = jax.lax.pmean(mean, axis_name)
    return whole, jax.lax.pmean(variance + (mean - whole) ** 2, axis_name)


@_moments.defjvp
def _moments_jvp(axes, axis_name, primals, tangents):
    # The derivative in the mean that the variance is taken from is zero: no sum of it is needed.
    (x,), (dx,) = primals, tangents
    mean, variance = _moments(axes, axis_name, x)
    slopes = dx.mean(axes), 2 * jnp.mean((x - mean) * dx, axes)
    if axis_name is not None:
        slopes = tuple(jax.lax.pmean(slope, axis_name) for slope in slopes)
    return (mean, variance), slopes


def batch_norm(
    x: Float[Array, "b ... c"],
    scale: Float[Array, "*dims"],
    shift: Float[Array, "*dims"],
    mean: Float[Array, "*dims"],
    variance: Float[Array, "*dims"],
    *,
    mode: Mode = "spatial",
    epsilon: float = 1e-5,
    activation: str = "none",
) -> Float[Array, "b ... c"]:
    """Returns ``activation(scale * (x - mean) / sqrt(variance + epsilon) + shift)``.

    For inference the statistics are those kept from training. For training they are the batch's,
    ``batch_norm(x, scale, shift, *batch_statistics(x))``, and gradients flow through them.

    Args:
      x: ``[b, ..., c]``.
      scale: gamma, ``[c]`` if ``mode`` is ``"spatial"``, else of the shape of one example.
      shift: beta, likewise.
      mean: likewise.
      variance: likewise.
      mode: ``"spatial"`` or ``"per_activation"``.
      epsilon: added to the variance.
      activation: a name of :data:`~jaxatr.kernels.activations.ACTIVATIONS`.

    Raises:
      ValueError: the mode or the activation is unknown, or a shape does not fit.
    """
    check_activation(activation)
    shape = tuple(x.shape[axis] for axis in range(x.ndim) if axis not in _reduced(mode, x.ndim))
    named: dict[str, Any] = {"scale": scale, "shift": shift, "mean": mean, "variance": variance}
    for name, array in named.items():
        if array.shape != shape:
            raise ValueError(f"{name}: got shape {array.shape}, wanted {shape} for mode {mode!r}")
    wide = jnp.promote_types(x.dtype, jnp.float32)
    factor = scale.astype(wide) * jax.lax.rsqrt(variance.astype(wide) + epsilon)
    vectors = mean.astype(wide), factor, shift.astype(wide)
    # Spread together, so that their gradients are summed together.
    mean, factor, shift = spread(x.shape[:-1], *vectors) if mode == "spatial" else vectors
    y = (x.astype(wide) - mean) * factor + shift
    return ACTIVATIONS[activation](y).astype(x.dtype)


def _reduced(mode: str, ndim: int) -> tuple[int, ...]:
    if mode not in MODES:
        raise ValueError(f"mode: got {mode!r}, wanted one of {list(MODES)}")
    return tuple(range(ndim - 1)) if mode == "spatial" else (0,)
