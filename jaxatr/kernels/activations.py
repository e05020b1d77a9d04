"""Activations by name, written with what every kernel language here can lower."""

from collections.abc import Callable

import jax.numpy as jnp

from jaxatr.typing import Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "none": lambda a: a,
    # Not a maximum, whose gradient at a tie is shared out; what is not a number stays that.
    "relu": lambda a: jnp.where(a <= 0, 0.0, a),
    "relu6": lambda a: jnp.where(a <= 0, 0.0, jnp.where(a >= 6, 6.0, a)),
    "leaky_relu": lambda a: jnp.where(a > 0, a, 0.01 * a),
    "elu": lambda a: jnp.where(a > 0, a, jnp.exp(jnp.minimum(a, 0.0)) - 1.0),
    "abs": lambda a: jnp.maximum(a, -a),
    "tanh": lambda a: jnp.tanh(a),
    "sigmoid": lambda a: 1.0 / (1.0 + jnp.exp(-a)),
    "swish": lambda a: a / (1.0 + jnp.exp(-a)),
}


def check_activation(name: str) -> None:
    """Raises a ``ValueError`` unless there is such an activation."""
    if name not in ACTIVATIONS:
        raise ValueError(f"activation: got {name!r}, wanted one of {sorted(ACTIVATIONS)}")
