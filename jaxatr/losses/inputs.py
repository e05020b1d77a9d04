"""The first steps of every loss with its arguments: a float that can bear it, shapes that fit."""

import chex
import jax.numpy as jnp

from jaxatr.typing import Array, ArrayLike, Float, Int, Shaped


def at_least_float32(x: Shaped[ArrayLike, "..."]) -> Float[Array, "..."]:
    """Returns ``x`` as a jax array, in float32 where it had fewer bits."""
    x = jnp.asarray(x)
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def labelled_batch(
    embeddings: Float[ArrayLike, "b d"], labels: Int[ArrayLike, " b"]
) -> tuple[Float[Array, "b d"], Int[Array, " b"]]:
    """Returns embeddings in at least float32 and their labels as an array."""
    embeddings = at_least_float32(embeddings)
    chex.assert_rank(embeddings, 2)
    return embeddings, class_indices(labels, len(embeddings))


def class_indices(labels: Int[ArrayLike, " b"], count: int) -> Int[Array, " b"]:
    """Returns labels, an integer for each of ``count`` examples, as a jax array."""
    labels = jnp.asarray(labels)
    chex.assert_type(labels, int)
    chex.assert_shape(labels, (count,))
    return labels
