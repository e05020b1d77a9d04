"""Losses of one's own: of the binary classifiers, and of an embedding."""

import jax
import jax.numpy as jnp


def focal(open_logits, labels):
    """Binary cross-entropy in which easy examples have less weight."""
    target = jax.nn.one_hot(labels, open_logits.shape[-1])
    margin = open_logits * (2 * target - 1)
    return jnp.sum(jax.nn.sigmoid(-margin) ** 2 * jax.nn.softplus(-margin), axis=-1)


def compact(embeddings, labels, margin=0.5):
    """Mean distance beyond the margin within the classes of a batch."""
    apart = jnp.sum(jnp.square(embeddings[:, None] - embeddings), axis=-1)
    same = labels[:, None] == labels
    return jnp.sum(jnp.maximum(apart - margin, 0) * same) / jnp.sum(same)
