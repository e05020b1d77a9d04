"""What several operations say about arguments that they cannot take."""

from typing import Any

import jax.numpy as jnp


def check_images(x: Any) -> None:
    """Raises a ``ValueError`` unless ``x`` is ``[b, h, w, c]`` of a floating-point type."""
    if x.ndim != 4:
        raise ValueError(f"x: got shape {x.shape}, wanted [b, h, w, c]")
    check_floating(x)


def check_floating(x: Any) -> None:
    """Raises a ``ValueError`` unless ``x`` is of a floating-point type."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(f"x: got type {x.dtype.name}, wanted a floating-point one")
