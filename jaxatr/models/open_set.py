"""The two heads of open-set recognition on a feature extractor (figure 2)."""

from typing import NamedTuple

import flax.linen as nn

from jaxatr import losses
from jaxatr.models.features import check_features
from jaxatr.typing import Array, ArrayLike, Float


class OpenSetOutput(NamedTuple):
    """The network's outputs on a batch.

    Attributes:
      logits: ``[b, k]``, of the closed-set classifier C.
      open_logits: ``[b, k]``, one per category-aware binary classifier :math:`f_i`, before the
        sigmoid.
      features: ``[b, d]``, Z.
    """

    logits: Float[Array, "b k"]
    open_logits: Float[Array, "b k"]
    features: Float[Array, "b d"]


class ReciprocalPoints(nn.Module):
    """A closed-set head with a reciprocal point per class and a radius (Chen et al. 2021).

    Attributes:
      num_classes: k.
    """

    num_classes: int

    @nn.compact
    def __call__(self, features: Float[Array, "b d"]) -> Float[Array, "b k"]:
        """Returns the logits, :func:`jaxatr.losses.reciprocal_logits`."""
        shape = (self.num_classes, features.shape[-1])
        points = self.param("points", nn.initializers.normal(0.1), shape)
        self.param("radius", nn.initializers.zeros, ())  # used only by the loss
        return losses.reciprocal_logits(features, points)


class OpenSetClassifier(nn.Module):
    """A feature extractor F with the closed-set head C and the category-aware binary classifiers.

    The backbone can be any module that takes ``(images, train=...)`` and returns features. The
    paper's code has two logits per binary classifier and a softmax over them, which is the same
    function as the single logit used here.

    Attributes:
      backbone: maps ``[b, h, w, c]`` to ``[b, d]``.
      num_classes: k, the number of known classes.
      head_bias: whether both heads have a bias; in the paper's code they have none.
      still: run the backbone in test mode during training too, with fixed batch statistics.
      reciprocal: use :class:`ReciprocalPoints` as the closed-set head instead of a linear layer.
    """

    backbone: nn.Module
    num_classes: int
    head_bias: bool = True
    still: bool = False
    reciprocal: bool = False

    @nn.compact
    def __call__(self, images: Float[ArrayLike, "b h w c"], train: bool = False) -> OpenSetOutput:
        """Returns both heads' logits and the features.

        Raises:
          ValueError: the backbone returned something other than ``[b, d]`` features.
        """
        features = self.backbone(images, train=train and not self.still)
        features = check_features(self.backbone, features, images)
        if self.reciprocal:
            closed = ReciprocalPoints(self.num_classes, name="closed_head")
        else:
            closed = nn.Dense(self.num_classes, use_bias=self.head_bias, name="closed_head")
        binary = nn.Dense(self.num_classes, use_bias=self.head_bias, name="open_head")
        return OpenSetOutput(closed(features), binary(features), features)
