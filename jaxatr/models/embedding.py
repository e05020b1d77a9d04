"""An embedding network with a coarse and a fine classifier (figure 1 of the quadruplet paper).

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
    """A feature extractor, a fully connected embedding layer, and a classifier for each level.

    All images of a tuple share the same weights. The classifiers take the embedding before it is
    normalised to unit length; the paper leaves this open.

    Attributes:
      backbone: maps ``[b, h, w, c]`` to ``[b, features]``.
      num_coarse: k1.
      num_fine: k2.
      dimension: d; 0 omits the layer, so that the embedding is the backbone's features.
      unit_length: normalise embeddings to length 1; an embedding of zeros is unchanged.
      still: run the backbone in test mode during training too, with fixed batch statistics.
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
    nonzero = squared > 0  # the gradient of the root at 0 is infinite
    return x * jnp.where(nonzero, jnp.where(nonzero, squared, 1) ** -0.5, 0)
