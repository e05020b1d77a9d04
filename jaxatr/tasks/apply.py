"""A network in training mode, as every classifier and embedding runs it."""

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
    """Returns a network's output on one device's images, and its new model state.

    Args:
      module: takes ``(images, train=True)``, and what is given further.
      params: its parameters.
      model_state: its other variables.
      images: normalised images.
      key: the run's; dropout draws from it by step and device.
      step: of the training.
      further: arguments of the network.
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
