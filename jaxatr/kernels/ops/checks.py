"""Checks of arguments that several operations share."""

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


def refuse_varying(name: str, *avals: Any) -> None:
    """Raises a ``NotImplementedError`` where ``jax.shard_map`` follows which values vary.

    The primitives do not tell it, and the gradient of what all devices share would then be one
    device's in silence.

    Args:
      name: of the operation.
      *avals: the abstract arguments.
    """
    axes = sorted({str(axis) for aval in avals for axis in aval.mat.varying})
    if axes:
        raise NotImplementedError(
            f"{name}: got arrays that vary along {', '.join(axes)}: call jax.shard_map with "
            "check_vma=False, and sum gradients over the axis yourself"
        )
