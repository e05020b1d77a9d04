"""Randomises layers of a network, to check whether an explanation depends on them."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxatr.resolve import nearest
from jaxatr.typing import Key, PyTree


def randomise_layers(params: PyTree, layers: Sequence[str], key: Key) -> PyTree:
    """Returns ``params`` with the arrays of some layers randomly permuted.

    For the randomisation checks of Adebayo et al. (2018, "Sanity Checks for Saliency Maps",
    section 3), which re-initialise the layers. The initialiser is unknown here, so the values of
    each array are permuted instead: this destroys the learned arrangement, but keeps the exact
    distribution of the values. Constant arrays are left unchanged.

    For the *cascading* check, name more and more layers from the logits down; for the *independent*
    one, name one layer at a time.

    Args:
      params: nested dictionaries of arrays, as in flax.
      layers: paths of the layers, such as ``"backbone/stage_4"``; each selects all arrays below it.
        The permutation of an array depends only on ``key`` and on its position in the tree.
      key: random key of the permutations.

    Raises:
      ValueError: a layer does not exist.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    paths = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
    for layer in layers:
        if not any(_below(path, layer) for path in paths):
            above = {path.rpartition("/")[0] for path in paths}
            raise ValueError(f"layers: no {layer!r} in params{nearest(layer, above)}")
    return structure.unflatten(
        _shuffled(jax.random.fold_in(key, number), leaf)
        if any(_below(path, layer) for layer in layers)
        else leaf
        for number, (path, (_, leaf)) in enumerate(zip(paths, leaves, strict=True))
    )


def _below(path: str, layer: str) -> bool:
    return f"{path}/".startswith(f"{layer}/")


def _shuffled(key: Key, values: Any) -> jax.Array:
    return jax.random.permutation(key, jnp.ravel(values)).reshape(jnp.shape(values))
