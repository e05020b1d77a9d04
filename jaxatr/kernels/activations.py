"""Activations by name, built from operations that XLA and every Pallas backend can lower."""

import math
from collections.abc import Callable

import jax.numpy as jnp

from jaxatr.typing import Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "none": lambda a: a,
    # Not a maximum, which splits the gradient at a tie. NaN stays NaN.
    "relu": lambda a: jnp.where(a <= 0, 0.0, a),
    "relu6": lambda a: jnp.where(a <= 0, 0.0, jnp.where(a >= 6, 6.0, a)),
    "leaky_relu": lambda a: jnp.where(a > 0, a, 0.01 * a),
    "elu": lambda a: jnp.where(a > 0, a, jnp.exp(jnp.where(a > 0, 0.0, a)) - 1.0),
    "abs": lambda a: jnp.maximum(a, -a),
    "tanh": lambda a: jnp.tanh(a),
    "sigmoid": lambda a: (1.0 / (1.0 + jnp.exp(-_clipped(a)))).astype(a.dtype),
    # The numerator is clipped too, or minus infinity would give NaN.
    "swish": lambda a: (_clipped(a) / (1.0 + jnp.exp(-_clipped(a)))).astype(a.dtype),
}


def _clipped(a: Array) -> Array:
    """Returns ``a`` clipped from below so that ``exp(-a)`` is finite, and no gradient is NaN.

    It is in float32 or wider: the derivative of ``1 / y`` needs ``y**2``, and ``exp(6)**2`` is
    infinite in float16.
    """
    a = a.astype(jnp.promote_types(a.dtype, jnp.float32))
    most = 0.9 * math.log(float(jnp.finfo(a.dtype).max))
    return jnp.maximum(a, -most)


def check_activation(name: str) -> None:
    """Raises a ``ValueError`` unless ``name`` is in :data:`ACTIVATIONS`."""
    if name not in ACTIVATIONS:
        raise ValueError(f"activation: got {name!r}, wanted one of {sorted(ACTIVATIONS)}")
