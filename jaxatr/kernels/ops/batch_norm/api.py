"""Batch norm in the two modes of section IV.B of the MIOpen paper, with an activation.

There is no kernel of its own: the statistics are two reductions, the rest is elementwise, XLA fuses
it (with the activation) into one pass, and the derivative that jax takes of it fuses likewise. What
XLA cannot fuse, the norm of a convolution's result, is in :mod:`jaxatr.kernels.pallas`.
"""

from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp

from jaxatr.kernels.activations import ACTIVATIONS, check_activation
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
    axes = _reduced(mode, x.ndim)
    x = x.astype(jnp.promote_types(x.dtype, jnp.float32))

    def mean(a: Array) -> Array:
        a = a.mean(axes)
        return a if axis_name is None else jax.lax.pmean(a, axis_name)

    center = mean(x)
    return center, mean((x - center) ** 2)


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
    y = (x.astype(wide) - mean.astype(wide)) * factor + shift.astype(wide)
    return ACTIVATIONS[activation](y).astype(x.dtype)


def _reduced(mode: str, ndim: int) -> tuple[int, ...]:
    if mode not in MODES:
        raise ValueError(f"mode: got {mode!r}, wanted one of {list(MODES)}")
    return tuple(range(ndim - 1)) if mode == "spatial" else (0,)
