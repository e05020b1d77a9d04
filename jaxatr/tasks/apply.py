"""Application of a network in training mode, for classifiers and embeddings."""

from typing import Any

import flax.linen as nn
import jax

from jaxatr import parallel
from jaxatr.typing import PyTree


def apply_training(
    module: nn.Module,
    params: PyTree,
    model_state: PyTree,
    images: jax.Array,
    key: jax.Array,
    step: jax.Array,
    **further: Any,
) -> tuple[Any, PyTree]:
    """Applies a network in training mode to one device's images.

    Args:
      module: the network, which takes ``(images, train=True)`` and ``further``.
      params: parameters of the network.
      model_state: the network's other variables.
      images: normalised images.
      key: the run's key; dropout folds in the step and the device.
      step: step of the training.
      **further: further arguments of the network.

    Returns:
      ``(output, model_state)``: the network's output and its updated model state.
    """
    dropout = jax.random.fold_in(jax.random.fold_in(key, step), jax.lax.axis_index(parallel.AXIS))
    return module.apply(
        {"params": params, **model_state},
        images,
        train=True,
        **further,
        mutable=list(model_state),
        rngs={"dropout": dropout},
    )
