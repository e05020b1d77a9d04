"""Shared argument handling of the losses: sufficient precision and matching shapes."""

import chex
import jax.numpy as jnp

from jaxatr.typing import Array, ArrayLike, Float, Int, Shaped


def at_least_float32(x: Shaped[ArrayLike, "..."]) -> Float[Array, "..."]:
    """Converts ``x`` to a JAX array of at least float32."""
    x = jnp.asarray(x)
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def labelled_batch(
    embeddings: Float[ArrayLike, "b d"], labels: Int[ArrayLike, " b"]
) -> tuple[Float[Array, "b d"], Int[Array, " b"]]:
    """Converts embeddings to at least float32 and labels to an array, checking their shapes."""
    embeddings = at_least_float32(embeddings)
    chex.assert_rank(embeddings, 2)
    return embeddings, class_indices(labels, len(embeddings))


def class_indices(labels: Int[ArrayLike, " b"], count: int) -> Int[Array, " b"]:
    """Converts labels to a JAX array, checking that they are ``count`` integers."""
    labels = jnp.asarray(labels)
    chex.assert_type(labels, int)
    chex.assert_shape(labels, (count,))
    return labels
