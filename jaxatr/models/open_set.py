"""The two heads of open-set recognition on any feature extractor (figure 2)."""

from typing import NamedTuple

import flax.linen as nn

from jaxatr.models.features import check_features
from jaxatr.typing import Array, ArrayLike, Float


class OpenSetOutput(NamedTuple):
    """What the network says of a batch.

    Attributes:
      logits: ``[b, k]``, of the closed-set classifier C.
      open_logits: ``[b, k]``, one per category-aware binary classifier :math:`f_i`, before the
        sigmoid.
      features: ``[b, d]``, Z.
    """

    logits: Float[Array, "b k"]
    open_logits: Float[Array, "b k"]
    features: Float[Array, "b d"]


class OpenSetClassifier(nn.Module):
    """A feature extractor F with the closed-set head C and the category-aware binary classifiers.

    The plug-in of the paper: ``backbone`` is any module that takes ``(images, train=...)`` and
    returns features. The paper's own code has two logits per binary classifier and a softmax over
    them, which is the same function as the one logit used here.

    Attributes:
      backbone: ``[b, h, w, c]`` to ``[b, d]``.
      num_classes: k, the number of known classes.
      head_bias: whether both heads have a bias; the paper's own code has none.
      still: run the backbone in test mode in training too, so that its batch statistics stay.
    """

    backbone: nn.Module
    num_classes: int
    head_bias: bool = True
    still: bool = False

    @nn.compact
    def __call__(self, images: Float[ArrayLike, "b h w c"], train: bool = False) -> OpenSetOutput:
        """Returns both heads' logits and the features.

        Raises:
          ValueError: the backbone returned something other than ``[b, d]`` features.
        """
        features = self.backbone(images, train=train and not self.still)
        features = check_features(self.backbone, features, images)
        closed = nn.Dense(self.num_classes, use_bias=self.head_bias, name="closed_head")
        binary = nn.Dense(self.num_classes, use_bias=self.head_bias, name="open_head")
        return OpenSetOutput(closed(features), binary(features), features)
