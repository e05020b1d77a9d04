"""Batch norm in the two modes of section IV.B of the MIOpen paper, with an activation.

It needs no custom kernel: the statistics are two reductions, and XLA fuses the elementwise rest,
activation included, into one pass, forward and backward. The one case that XLA cannot fuse, a norm
after a convolution, is in :mod:`jaxatr.kernels.pallas`.
"""

import math
from functools import partial
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp

from jaxatr.kernels.activations import ACTIVATIONS, check_activation
from jaxatr.kernels.ops.channels import spread, totals
from jaxatr.kernels.ops.checks import check_floating
from jaxatr.typing import Array, Float

Mode: TypeAlias = Literal["spatial", "per_activation"]
MODES: tuple[Mode, ...] = ("spatial", "per_activation")


def batch_statistics(
    x: Float[Array, "b ... c"], *, mode: Mode = "spatial", axis_name: str | None = None
) -> tuple[Float[Array, "*dims"], Float[Array, "*dims"]]:
    """Computes the mean and the (biased) variance of a batch, in float32 or wider.

    The variance is computed from differences, not from raw squares, so that features far from zero
    keep their precision.

    Args:
      x: ``[b, ..., c]``.
      mode: ``"spatial"`` for one value per channel (the last axis), or ``"per_activation"`` for
        one per channel and pixel, reducing the batch axis only.
      axis_name: an axis of ``pmap`` or ``vmap`` to reduce over as well.

    Raises:
      ValueError: the mode is unknown.
    """
    x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return _moments(_reduced(mode, x.ndim), axis_name, x)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _moments(axes: tuple[int, ...], axis_name: str | None, x: Array) -> tuple[Array, Array]:
    """Computes mean and variance in one pass, from differences to the first example's mean.

    That shift is accurate enough: with ``b`` examples, its squared distance from the true mean is
    at most ``b`` times the variance.
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
    # The variance's derivative with respect to the mean is zero, so its sum is not needed.
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

    For inference, pass the running statistics. For training, pass the batch's,
    ``batch_norm(x, scale, shift, *batch_statistics(x))``; gradients flow through them.

    Args:
      x: ``[b, ..., c]``.
      scale: gamma, ``[c]`` if ``mode`` is ``"spatial"``, otherwise of the shape of one example.
      shift: beta, of the shape of ``scale``.
      mean: the mean, of the shape of ``scale``.
      variance: the variance, of the shape of ``scale``.
      mode: ``"spatial"`` or ``"per_activation"``.
      epsilon: added to the variance.
      activation: a name of :data:`~jaxatr.kernels.activations.ACTIVATIONS`.

    Raises:
      ValueError: the mode or the activation is unknown, a shape does not fit, or ``x`` is not of a
        floating-point type.
    """
    check_activation(activation)
    check_floating(x)
    shape = tuple(x.shape[axis] for axis in range(x.ndim) if axis not in _reduced(mode, x.ndim))
    named: dict[str, Any] = {"scale": scale, "shift": shift, "mean": mean, "variance": variance}
    for name, array in named.items():
        if array.shape != shape:
            raise ValueError(f"{name}: got shape {array.shape}, wanted {shape} for mode {mode!r}")
    wide = jnp.promote_types(x.dtype, jnp.float32)
    factor = scale.astype(wide) * jax.lax.rsqrt(variance.astype(wide) + epsilon)
    vectors = mean.astype(wide), factor, shift.astype(wide)
    # Broadcast together, so that their gradients are summed in one loop.
    mean, factor, shift = spread(x.shape[:-1], *vectors) if mode == "spatial" else vectors
    y = (x.astype(wide) - mean) * factor + shift
    return ACTIVATIONS[activation](y).astype(x.dtype)


def _reduced(mode: str, ndim: int) -> tuple[int, ...]:
    if mode not in MODES:
        raise ValueError(f"mode: got {mode!r}, wanted one of {list(MODES)}")
    return tuple(range(ndim - 1)) if mode == "spatial" else (0,)
