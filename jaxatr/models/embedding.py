"""An embedding with a coarse and a fine classifier beside it (figure 1 of the quadruplet paper).

Karaman et al. (2019), "Quadruplet Selection Methods for Deep Embedding Learning".
"""

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from jaxatr.models.features import check_features
from jaxatr.typing import Array, ArrayLike, Float


class EmbeddingOutput(NamedTuple):
    """The network's outputs on a batch.

    Attributes:
      embeddings: ``[b, d]``.
      coarse_logits: ``[b, k1]``.
      fine_logits: ``[b, k2]``.
    """

    embeddings: Float[Array, "b d"]
    coarse_logits: Float[Array, "b k1"]
    fine_logits: Float[Array, "b k2"]


class EmbeddingNetwork(nn.Module):
    """A feature extractor, a fully connected layer that embeds, and a classifier for each level.

    All images of a tuple go through the same weights. The classifiers see the embedding as the
    layer gives it, before it is brought to unit length: the paper does not say which.

    Attributes:
      backbone: ``[b, h, w, c]`` to ``[b, features]``.
      num_coarse: k1.
      num_fine: k2.
      dimension: d; 0 leaves the layer out, and the embedding is the backbone's features.
      unit_length: bring embeddings to length 1; an embedding of zeros stays so.
      still: run the backbone in test mode in training too, so that its batch statistics stay.
    """

    backbone: nn.Module
    num_coarse: int
    num_fine: int
    dimension: int = 1024
    unit_length: bool = True
    still: bool = False

    @nn.compact
    def __call__(self, images: Float[ArrayLike, "b h w c"], train: bool = False) -> EmbeddingOutput:
        """Returns embeddings and both classifiers' logits.

        Raises:
          ValueError: the backbone returned something other than ``[b, features]``.
        """
        x = self.backbone(images, train=train and not self.still)
        x = check_features(self.backbone, x, images)
        if self.dimension:
            x = nn.Dense(self.dimension, name="embedding")(x)
        coarse = nn.Dense(self.num_coarse, name="coarse_head")(x)
        fine = nn.Dense(self.num_fine, name="fine_head")(x)
        return EmbeddingOutput(_unit(x) if self.unit_length else x, coarse, fine)


def _unit(x: Float[Array, "b d"]) -> Float[Array, "b d"]:
    squared = jnp.sum(jnp.square(x), axis=-1, keepdims=True)
    some = squared > 0  # the slope of the root at 0 is infinite
    return x * jnp.where(some, jnp.where(some, squared, 1) ** -0.5, 0)
