"""Networks of inverted residuals: MobileNetV2 and EfficientNet-Lite, NHWC.

Sandler et al. (2018), "MobileNetV2: Inverted Residuals and Linear Bottlenecks"; Tan and Le (2019),
"EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", in Google's variant
EfficientNet-Lite, without squeeze-and-excitation and with ReLU6.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from jaxatr.models.convolution import Padding, square
from jaxatr.models.freezing import is_of
from jaxatr.models.resnet import AttendedFeatures, Attention, BlockOutput, Norm, batch_norm
from jaxatr.typing import Array, ArrayLike, Float

_STEM, _HEAD = 32, 1280  # features of the stem and of the head
OPENNESS = 4.0
"""Initial logit of the gates of attention. Nothing bypasses the attention of a linear bottleneck
without a shortcut: gates that at first pass only a quarter would suppress most of what pretrained
weights compute."""

_ATTENDED = 3  # map sizes with attention; a residual network has three stages with attention


class InvertedResidual(nn.Module):
    """1×1 expansion, depthwise and 1×1 projection convolutions, with a shortcut if possible."""

    features: int
    kernel_size: int
    stride: int
    expansion: int
    norm: Norm
    padding: Padding
    dtype: Any = jnp.float32
    attention: Attention | None = None

    @nn.compact
    def __call__(self, x: Float[Array, "b h w c"]) -> BlockOutput:
        """Returns the block's output without activation: the bottleneck is linear."""
        conv = partial(square, padding=self.padding, dtype=self.dtype)
        inner = x.shape[-1] * self.expansion
        y = x
        if self.expansion != 1:
            y = conv(inner, name="expand_conv")(y)
            y = nn.relu6(self.norm(name="expand_norm")(y))
        y = conv(inner, self.kernel_size, self.stride, inner, name="depth_conv")(y)
        y = nn.relu6(self.norm(name="depth_norm")(y))
        y = self.norm(name="project_norm")(conv(self.features, name="project_conv")(y))
        shortcut = self.stride == 1 and x.shape[-1] == self.features
        if self.attention is None:
            return y + x if shortcut else y
        attended = self.attention(norm=self.norm, dtype=self.dtype, name="attention")(y)
        return attended + x if shortcut else attended, attended - y


class MobileNet(nn.Module):
    """A feature extractor of inverted residuals, which maps an image to a feature vector Z.

    Attributes:
      stages: for each stage, the size of the depthwise kernel, the number of blocks, the stride of
        the first block, the expansion factor and the number of features.
      padding: padding of the convolutions.
      epsilon: epsilon of the batch norms.
      dtype: compute dtype; parameters and batch statistics stay float32.
      axis_name: the ``pmap`` axis over which training batch statistics are reduced, or ``None``.
      attention: constructor of an attention module (:class:`~jaxatr.models.cbam.CBAM`) for every
        block of the last three map sizes, between the last batch norm and the addition of the
        shortcut; ``None`` for no attention.
      frozen: names of parts, such as ``"stem"``, ``"stage1"`` or ``"head"``, whose batch norms use
        their running statistics during training too, without updating them.
    """

    stages: Sequence[tuple[int, int, int, int, int]]
    padding: Padding = "even"
    epsilon: float = 1e-5
    dtype: Any = jnp.float32
    axis_name: str | None = None
    attention: Attention | None = None
    frozen: Sequence[str] = ()

    @property
    def maps(self) -> tuple[str, ...]:
        """Names of the maps sown into the collection ``intermediates``: the stem's and stages'."""
        return ("map_stem", *(f"map_stage{i + 1}" for i in range(len(self.stages))))

    def __call__(
        self, images: Float[ArrayLike, "b h w c"], train: bool = False
    ) -> Float[Array, "b d"]:
        """Returns the 1280 features Z of each image.

        Args:
          images: normalised images, any size from 32 pixels, any number of channels.
          train: normalise by the batch's statistics, and update the running ones.
        """
        return self.attended(images, train).features

    @nn.compact
    def attended(
        self, images: Float[ArrayLike, "b h w c"], train: bool = False
    ) -> AttendedFeatures:
        """Returns the features together with the changes that attention made.

        The three "stages" of the result are the three smallest map sizes: the changes are those of
        all blocks of a size, and the output is that of the size's last block.

        Args:
          images: normalised images, any size from 32 pixels, any number of channels.
          train: normalise by the batch's statistics, and update the running ones.
        """
        norm = self._norm("stem", train)
        x = jnp.asarray(images, self.dtype)
        conv = partial(square, padding=self.padding, dtype=self.dtype)
        x = nn.relu6(norm(name="stem_norm")(conv(_STEM, 3, 2, name="stem_conv")(x)))
        self.sow("intermediates", "map_stem", x)
        deltas: list[tuple[Array, ...]] = [()]  # one for each map size, like the outputs
        outputs = [x]
        for number, (size, blocks, stride, expansion, features) in enumerate(self.stages, 1):
            norm = self._norm(f"stage{number}", train)
            smaller = sum(later[2] > 1 for later in self.stages[number:])  # map sizes to come
            if stride > 1:
                deltas.append(())
                outputs.append(x)
            for index in range(blocks):
                x = InvertedResidual(
                    features,
                    size,
                    stride if index == 0 else 1,
                    expansion,
                    norm=norm,
                    padding=self.padding,
                    dtype=self.dtype,
                    attention=self.attention if smaller < _ATTENDED else None,
                    name=f"stage{number}_block{index + 1}",
                )(x)
                if isinstance(x, tuple):
                    x, delta = x
                    deltas[-1] += (delta,)
            outputs[-1] = x
            self.sow("intermediates", f"map_stage{number}", x)
        norm = self._norm("head", train)
        x = nn.relu6(norm(name="head_norm")(conv(_HEAD, name="head_conv")(x)))
        features = jnp.mean(x, axis=(1, 2), dtype=jnp.float32)
        detail = outputs[-_ATTENDED - 1] if len(outputs) > _ATTENDED else outputs[0]
        return AttendedFeatures(
            features, tuple(deltas[-_ATTENDED:]), tuple(outputs[-_ATTENDED:]), detail
        )

    def _norm(self, part: str, train: bool) -> Norm:
        updates = train and not any(is_of(part, name) for name in self.frozen)
        return partial(batch_norm(self, updates), epsilon=self.epsilon)


def _scaled(width: float, depth: float) -> tuple[tuple[int, int, int, int, int], ...]:
    """Scales EfficientNet-B0's stages in width and depth; the first and last keep their depth."""
    stages = (
        (3, 1, 1, 1, 16),
        (3, 2, 2, 6, 24),
        (5, 2, 2, 6, 40),
        (3, 3, 2, 6, 80),
        (5, 3, 1, 6, 112),
        (5, 4, 2, 6, 192),
        (3, 1, 1, 6, 320),
    )
    last = len(stages) - 1
    return tuple(
        (
            size,
            blocks if place in (0, last) else math.ceil(depth * blocks),
            stride,
            expansion,
            _multiple_of_8(width * features),
        )
        for place, (size, blocks, stride, expansion, features) in enumerate(stages)
    )


def _multiple_of_8(features: float) -> int:
    """Rounds to the nearest multiple of 8, or up if that is more than 10 % less."""
    nearest = max(8, int(features + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * features else nearest


MobileNetV2 = partial(
    MobileNet,
    stages=(
        (3, 1, 1, 1, 16),
        (3, 2, 2, 6, 24),
        (3, 3, 2, 6, 32),
        (3, 4, 2, 6, 64),
        (3, 3, 1, 6, 96),
        (3, 3, 2, 6, 160),
        (3, 1, 1, 6, 320),
    ),
)
_Lite = partial(MobileNet, padding="same", epsilon=1e-3)
EfficientNetLite0 = partial(_Lite, stages=_scaled(1.0, 1.0))
EfficientNetLite2 = partial(_Lite, stages=_scaled(1.1, 1.2))
