"""Argument checks shared by several operations."""

from collections.abc import Collection
from typing import Any

import jax.numpy as jnp

from jaxatr.typing import Array


def as_images(x: Any) -> Array:
    """Returns ``x`` as a jax array; jax narrows some NumPy types, such as float64.

    Raises:
      ValueError: ``x`` is not ``[b, h, w, c]``, or not of a floating-point type.
    """
    x = jnp.asarray(x)
    if x.ndim != 4:
        raise ValueError(f"x: got shape {x.shape}, wanted [b, h, w, c]")
    check_floating(x)
    return x


def check_floating(x: Any) -> None:
    """Raises a ``ValueError`` unless ``x`` is of a floating-point type."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(f"x: got type {x.dtype.name}, wanted a floating-point one")


def check_algorithm_name(name: str, algorithms: Collection[str]) -> None:
    """Raises a ``ValueError`` unless ``name`` is ``"auto"`` or the name of an algorithm."""
    if name != "auto" and name not in algorithms:
        raise ValueError(f"algorithm: got {name!r}, wanted 'auto' or one of {sorted(algorithms)}")


def refuse_varying(name: str, *avals: Any) -> None:
    """Raises a ``NotImplementedError`` under ``jax.shard_map`` with ``check_vma=True``.

    The primitives do not track which values vary over devices, so gradients with respect to
    replicated values would silently miss the other devices' contributions.
    """
    axes = sorted({str(axis) for aval in avals for axis in aval.mat.varying})
    if axes:
        raise NotImplementedError(
            f"{name}: got arrays that vary along {', '.join(axes)}: call jax.shard_map with "
            "check_vma=False, and sum gradients over the axis yourself"
        )
