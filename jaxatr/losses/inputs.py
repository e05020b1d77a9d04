"""Shared argument handling of the losses: sufficient precision and matching shapes."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.jax_internals import Tracer
from jaxatr.typing import Array, ArrayLike, Float, Int, Shaped


def at_least_float32(x: Shaped[ArrayLike, "..."]) -> Float[Array, "..."]:
    """Converts ``x`` to a JAX array of at least float32."""
    x = jnp.asarray(x)
    with jax.numpy_dtype_promotion("standard"):  # also if the caller asks for "strict"
        return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def check_temperature(temperature: float) -> None:
    """Checks a divisor of logits or cosines.

    Raises:
      ValueError: it is not positive.
    """
    if not temperature > 0:
        raise ValueError(f"temperature: got {temperature}, wanted more than 0")


def labelled_batch(
    embeddings: Float[ArrayLike, "b d"], labels: Int[ArrayLike, " b"]
) -> tuple[Float[Array, "b d"], Int[Array, " b"]]:
    """Converts embeddings to at least float32 and labels to an array, checking their shapes."""
    embeddings = at_least_float32(embeddings)
    chex.assert_rank(embeddings, 2)
    return embeddings, class_indices(labels, len(embeddings))


def known_classes(labels: Int[ArrayLike, " b"], count: int, classes: int) -> Int[Array, " b"]:
    """Converts labels to a JAX array, checking that they are ``count`` integers in range.

    The values of traced labels are not available; :func:`nan_outside` marks them in the loss.

    Raises:
      ValueError: a concrete label is not in ``[0, classes)``.
    """
    checked = class_indices(labels, count)
    if not isinstance(labels, Tracer):
        given = np.asarray(labels)
        wrong = given[(given < 0) | (given >= classes)]
        if wrong.size:
            raise ValueError(f"labels: got {wrong[0]}, wanted integers in [0, {classes})")
    return checked


def nan_outside(
    loss: Float[Array, " b"], labels: Int[Array, " b"], classes: int
) -> Float[Array, " b"]:
    """Replaces the loss of examples whose label is not in ``[0, classes)`` by NaN."""
    return jnp.where((labels >= 0) & (labels < classes), loss, jnp.nan)


def class_indices(labels: Int[ArrayLike, " b"], count: int) -> Int[Array, " b"]:
    """Converts labels to a JAX array, checking that they are ``count`` integers."""
    labels = jnp.asarray(labels)
    chex.assert_type(labels, int)
    chex.assert_shape(labels, (count,))
    return labels
