"""Random keys that belong to examples, wherever in a batch or on which device they are."""

from functools import partial

import jax
import jax.numpy as jnp

from jaxatr.typing import Array, ArrayLike, Int, Key, Shaped


def example_keys(
    ids: Int[ArrayLike, " b"], key: Key, step: Int[ArrayLike, ""] | int
) -> Shaped[Array, " b"]:
    """Returns a key for each example, ``[b]``, which belongs to it and to the step alone."""
    own = jax.random.fold_in(key, step)
    return jax.vmap(partial(jax.random.fold_in, own))(jnp.asarray(ids))
