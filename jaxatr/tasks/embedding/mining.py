"""The selection of quadruplets over a training set, on all local devices."""

from functools import lru_cache

import jax
import numpy as np

from jaxatr import mining, parallel
from jaxatr.typing import Batch, Config, Float, Int, PyTree


def select(
    embeddings: Float[np.ndarray, "n d"],
    fine: Int[np.ndarray, " n"],
    coarse: Int[np.ndarray, " n"],
    fields: Config,
    *,
    seed: int,
    step: int,
) -> dict[str, np.ndarray]:
    """Selects a quadruplet for every example, independently of the number of devices.

    Args:
      embeddings: ``[n, d]``.
      fine: ``[n]``, fine classes.
      coarse: ``[n]``, coarse classes.
      fields: ``config.mining``.
      seed: random seed.
      step: step of the training, which is folded into the seed.

    Returns:
      ``members`` int32 ``[n, 4]``, the positions of reference, positive, sibling and negative;
      ``valid`` bool ``[n]``; ``selected``, the step.

    Raises:
      ValueError: an embedding is not finite, or no example has a quadruplet.
    """
    if bad := np.count_nonzero(~np.isfinite(embeddings).all(axis=1)):
        raise ValueError(f"after step {step}, {bad} of {len(fine)} embeddings are not finite")
    key = jax.random.key_data(jax.random.fold_in(jax.random.key(seed), step))
    choose = _chooser(fields.method, fields.sibling_class or None, fields.block_size)
    references = {"reference": np.arange(len(fine), dtype=np.int32)}
    given = (embeddings, fine, coarse, key)
    ((_, found),) = parallel.map_batches(choose, given, [references])
    if not found.valid.any():
        raise ValueError(
            "no training example has a quadruplet, which needs another image of its class, "
            "another class of its coarse class, and another coarse class"
        )
    members = (found.reference, found.positive, found.sibling, found.negative)
    return {
        "members": np.stack(members, axis=1),
        "valid": found.valid,
        "selected": np.asarray(step, np.int32),
    }


@lru_cache  # the same function for the same options, so that it is compiled only once
def _chooser(method: mining.Method, sibling_class: mining.SiblingClass | None, block_size: int):
    def choose(given: PyTree, batch: Batch) -> mining.Quadruplets:
        embeddings, fine, coarse, key = given
        return mining.quadruplets(
            embeddings,
            fine,
            coarse,
            batch["reference"],
            method=method,
            key=jax.random.wrap_key_data(key),
            sibling_class=sibling_class,
            block_size=block_size,
        )

    return choose
