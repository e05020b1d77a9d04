"""Random keys of examples, independent of their position in the batch and their device."""

from functools import partial

import jax
import jax.numpy as jnp

from jaxatr.typing import Array, ArrayLike, Int, Key, Shaped


def example_keys(
    ids: Int[ArrayLike, " b"], key: Key, step: Int[ArrayLike, ""] | int
) -> Shaped[Array, " b"]:
    """Returns a key for each example, ``[b]``, which depends only on ``key``, id and step."""
    step_key = jax.random.fold_in(key, step)
    return jax.vmap(partial(jax.random.fold_in, step_key))(jnp.asarray(ids))
