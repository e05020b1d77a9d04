"""Validation of a backbone's output; the backbone may be a user's own."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from jaxatr.typing import Array, Float


def check_features(backbone: nn.Module, features: Any, images: Any) -> Float[Array, "b d"]:
    """Checks the shape of a backbone's features and returns them in float32.

    Args:
      backbone: the module that computed the features.
      features: the backbone's output.
      images: the backbone's input, ``[b, ...]``.

    Raises:
      ValueError: ``features`` are not ``[b, d]``.
    """
    count = jnp.shape(images)[0]
    if jnp.ndim(features) != 2 or features.shape[0] != count:
        raise ValueError(
            f"backbone {type(backbone).__name__}: got features of shape "
            f"{jnp.shape(features)}, wanted [{count}, d]"
        )
    return jnp.asarray(features, jnp.float32)
