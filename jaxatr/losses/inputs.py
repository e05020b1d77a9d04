"""What every loss does to its arguments first: a float that can bear it, shapes that fit."""

import jax.numpy as jnp
import numpy as np

from jaxatr.typing import Array, ArrayLike, Float, Int, Shaped


def at_least_float32(x: Shaped[ArrayLike, "..."]) -> Float[Array, "..."]:
    """Returns ``x`` as a jax array, in float32 where it had fewer bits."""
    x = jnp.asarray(x)
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def check_same_shape(**arrays: Shaped[ArrayLike, "..."]) -> None:
    """Checks that all arrays have the shape of the first.

    Raises:
      ValueError: one has not; the message has its name.
    """
    (first, shape), *others = ((name, np.shape(array)) for name, array in arrays.items())
    for name, other in others:
        if other != shape:
            raise ValueError(f"{name}: got shape {other}, wanted that of {first}, {shape}")


def labelled_batch(
    embeddings: Float[ArrayLike, "b d"], labels: Int[ArrayLike, " b"]
) -> tuple[Float[Array, "b d"], Int[Array, " b"]]:
    """Returns embeddings in at least float32 and their labels as an array.

    Raises:
      ValueError: the labels are not integers, or not one per embedding.
    """
    if not jnp.issubdtype(jnp.result_type(labels), jnp.integer):
        raise ValueError(f"labels: got {jnp.result_type(labels)}, wanted integers")
    if np.shape(labels) != np.shape(embeddings)[:1]:
        raise ValueError(
            f"labels: got shape {np.shape(labels)}, wanted one per embedding, "
            f"{np.shape(embeddings)[:1]}"
        )
    return at_least_float32(embeddings), jnp.asarray(labels)
