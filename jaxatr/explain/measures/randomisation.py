"""Networks with some layers made random, to see whether an explanation depends on them."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxatr.resolve import nearest
from jaxatr.typing import Key, PyTree


def randomise_layers(params: PyTree, layers: Sequence[str], key: Key) -> PyTree:
    """Returns ``params`` with what the named layers have learnt destroyed.

    For the randomisation checks of Adebayo et al. (2018, "Sanity Checks for Saliency Maps",
    section 3), there by drawing from the initialiser again. That is unknown here, so each array's
    values are put in random order instead: the arrangement, which holds what was learnt, is lost,
    while every array keeps its distribution exactly. What an
    initialiser makes constant, and training left so, stays as it is, as it would there.

    Their *cascading* check names more and more layers from the logits down; naming one at a time is
    their *independent* one.

    Args:
      params: nested dictionaries of arrays, as flax gives them.
      layers: path of each, as in ``"backbone/stage_4"``; all arrays below it are meant. An array
        is permuted by ``key`` and its place in the tree alone, whatever else is named.
      key: of the permutations.

    Raises:
      ValueError: there is no such layer.
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
