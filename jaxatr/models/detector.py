"""A dense one-stage detector: a small feature pyramid and heads at a quarter of the resolution.

One map of stride 4 serves targets of all sizes, as in CenterNet (Zhou et al. 2019, "Objects as
Points"); the distances to the box's sides are predicted as in FCOS (Tian et al. 2019) and TTFNet
(Liu et al. 2020, "Training-Time-Friendly Network for Real-Time Object Detection"). Whether there is
a target is asked apart from its class.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxatr.models.convolution import Conv, square
from jaxatr.models.mobile import MobileNet
from jaxatr.models.resnet import ResNet
from jaxatr.typing import Array, ArrayLike, Float

STRIDE = 4
"""Pixels of the image from one place of the heads' maps to the next."""

MULTIPLE = 32
"""The sides of the network's images are multiples of this."""

_RARE = -4.6  # logit of the share of places that are the centre of a target, 1 %
_REACH = 16.0  # pixels of a distance of 1, the typical half of a box


class DetectionOutput(NamedTuple):
    """The network's outputs on a batch, at every fourth row and column of the images.

    Attributes:
      target: ``[b, h, w]``, logit of there being the centre of a target of any class.
      open_logits: ``[b, h, w, k]``, one per category-aware binary classifier, for the target whose
        centre is here.
      distances: ``[b, h, w, 4]``, from the middle of the place to the box's left, top, right and
        bottom side, in pixels of the image, not negative.
    """

    target: Float[Array, "b h w"]
    open_logits: Float[Array, "b h w k"]
    distances: Float[Array, "b h w 4"]


class DetectionNetwork(nn.Module):
    """A backbone, a feature pyramid, and the heads.

    Attributes:
      backbone: a built-in network with maps at strides 4, 8, 16 and 32.
      num_classes: k, the number of known classes.
      width: channels of the pyramid and of the heads, a multiple of 8.
      still: run the backbone in test mode during training too, with fixed batch statistics.
    """

    backbone: ResNet | MobileNet
    num_classes: int
    width: int = 64
    still: bool = False

    @nn.compact
    def __call__(self, images: Float[ArrayLike, "b h w c"], train: bool = False) -> DetectionOutput:
        """Returns the heads' maps.

        Args:
          images: normalised images, whose sides are multiples of :data:`MULTIPLE`.
          train: normalise the backbone by the batch's statistics, and update the running ones.

        Raises:
          ValueError: a side is not a multiple.
        """
        if images.shape[1] % MULTIPLE or images.shape[2] % MULTIPLE:
            raise ValueError(
                f"images: got {images.shape[1]}x{images.shape[2]} pixels, wanted multiples of "
                f"{MULTIPLE}"
            )
        seen = self.backbone.attended(images, train=train and not self.still)
        x = self._normalised(self._conv(1, "lateral4")(seen.stages[-1]), "lateral4_norm")
        for level, finer in zip((3, 2, 1), (*seen.stages[-2::-1], seen.detail), strict=True):
            lateral = self._conv(1, f"lateral{level}")(finer)
            x = self._normalised(lateral + _doubled(x), f"lateral{level}_norm")
        x = self._normalised(self._conv(3, "trunk")(x), "trunk_norm")
        what = self._normalised(self._conv(3, "class")(x), "class_norm")
        where = self._normalised(self._conv(3, "box")(x), "box_norm")
        target = _head(1, "target_head", _RARE)(what)[..., 0]
        open_logits = _head(self.num_classes, "open_head")(what)
        distances = _REACH * jax.nn.softplus(_head(4, "box_head")(where))
        return DetectionOutput(*(a.astype(jnp.float32) for a in (target, open_logits, distances)))

    def _conv(self, size: int, name: str) -> Conv:
        return square(self.width, size, dtype=self.backbone.dtype, name=name)

    def _normalised(self, x: Array, name: str) -> Array:
        # Unlike batch statistics, those of groups do not depend on the size of the batch.
        norm = nn.GroupNorm(num_groups=8, dtype=self.backbone.dtype, name=name)
        return nn.relu(norm(x))


def _head(features: int, name: str, bias: float = 0.0) -> Conv:
    return Conv(
        features,
        (1, 1),
        kernel_init=nn.initializers.normal(0.01),
        bias_init=nn.initializers.constant(bias),
        name=name,
    )


def _doubled(x: Float[Array, "b h w c"]) -> Float[Array, "b y x c"]:
    """Repeats each row and each column."""
    batch, height, width, channels = x.shape
    shape = (batch, height, 2, width, 2, channels)
    return jnp.broadcast_to(x[:, :, None, :, None], shape).reshape(
        batch, 2 * height, 2 * width, channels
    )
