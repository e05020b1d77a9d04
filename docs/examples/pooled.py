"""Pooled: one convolution and its mean, 16 features."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from jaxatr.models.backbones.backbone import Backbone


class Pooled(nn.Module):
    """The network."""

    width: int = 16
    dtype: Any = jnp.float32
    axis_name: str | None = None
    frozen: tuple[str, ...] = ()
    attention: Any = None

    @nn.compact
    def __call__(self, images, train=False):
        """Computes the features."""
        maps = nn.relu(nn.Conv(self.width, (3, 3), strides=2, dtype=self.dtype)(images))
        return maps.mean(axis=(1, 2))


PART = Backbone(Pooled, fields=("width",))
