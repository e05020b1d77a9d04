"""Residual networks (He et al. 2016, "Deep Residual Learning for Image Recognition"), NHWC."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import flax.linen as nn
import jax.numpy as jnp

from jaxatr import kernels
from jaxatr.models.convolution import QuickParameters, square
from jaxatr.models.freezing import is_of
from jaxatr.typing import Array, ArrayLike, Float

Norm = Any  # constructor of batch norm, with everything but the name and initialisers bound
Attention: TypeAlias = Callable[..., nn.Module]  # takes norm= and dtype=; preserves the shape

# A block's output; with attention, also the change that attention made before the shortcut.
BlockOutput: TypeAlias = (
    Float[Array, "b h2 w2 f"] | tuple[Float[Array, "b h2 w2 f"], Float[Array, "b h2 w2 f"]]
)


class AttendedFeatures(NamedTuple):
    """The outputs of a network with attention on a batch.

    Attributes:
      features: ``[b, d]``, Z.
      deltas: for each block of each of the last three stages, the change that attention made: the
        map after it minus the map before it, ``[b, h, w, f]``; an empty tuple for a stage without
        attention.
      stages: output of each of the last three stages, ``[b, h, w, f]``.
      detail: output of the stage before these, with twice the rows and columns of the first; in a
        shallower network, that of its first stage.
    """

    features: Float[Array, "b d"]
    deltas: tuple[tuple[Array, ...], ...]
    stages: tuple[Array, ...]
    detail: Float[Array, "b h w f"]


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut (ResNet-18 and -34)."""

    features: int
    stride: int
    norm: Norm
    dtype: Any = jnp.float32
    attention: Attention | None = None
    expansion = 1

    @nn.compact
    def __call__(self, x: Float[Array, "b h w c"]) -> BlockOutput:
        """Returns the block's output after the last activation."""
        conv = partial(square, dtype=self.dtype)
        y = conv(self.features, 3, self.stride, name="conv1")(x)
        y = nn.relu(self.norm(name="norm1")(y))
        y = conv(self.features, 3, name="conv2")(y)
        y = self.norm(name="norm2")(y)
        return _added(self, y, x, conv)


class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions and a shortcut (ResNet-50 and -101).

    The stride is on the 3×3 convolution, as in torchvision ("v1.5").
    """

    features: int
    stride: int
    norm: Norm
    dtype: Any = jnp.float32
    attention: Attention | None = None
    expansion = 4
    stride_first = False

    @nn.compact
    def __call__(self, x: Float[Array, "b h w c"]) -> BlockOutput:
        """Returns the block's output after the last activation."""
        conv = partial(square, dtype=self.dtype)
        first, second = (self.stride, 1) if self.stride_first else (1, self.stride)
        y = nn.relu(self.norm(name="norm1")(conv(self.features, 1, first, name="conv1")(x)))
        y = conv(self.features, 3, second, name="conv2")(y)
        y = nn.relu(self.norm(name="norm2")(y))
        y = conv(self.features * self.expansion, 1, name="conv3")(y)
        y = self.norm(name="norm3")(y)
        return _added(self, y, x, conv)


class BottleneckV1(Bottleneck):
    """The original block of He et al. (2016), with the stride on the first 1×1 convolution."""

    stride_first = True


def _added(block, y, x, conv) -> BlockOutput:
    """Returns the activated sum of the branch ``y``, with any attention, and the shortcut."""
    if block.attention is None:
        return nn.relu(y + _shortcut(block, x, y.shape, conv))
    attended = block.attention(norm=block.norm, dtype=block.dtype, name="attention")(y)
    return nn.relu(attended + _shortcut(block, x, y.shape, conv)), attended - y


def _shortcut(block, x, shape, conv):
    """Returns ``x``, projected by a 1×1 convolution if the block changes its shape."""
    if x.shape == shape:
        return x
    x = conv(shape[-1], 1, block.stride, name="shortcut_conv")(x)
    return block.norm(name="shortcut_norm")(x)


class ResNet(nn.Module):
    """A residual feature extractor F, which maps an image to a feature vector Z.

    Attributes:
      stage_sizes: blocks in each of the four stages.
      block: :class:`BasicBlock`, :class:`Bottleneck` or :class:`BottleneckV1`.
      width: features of the first stage; each later stage doubles them.
      stem: ``"7x7"`` (7×7 convolution of stride 2 and 3×3 max pooling of stride 2, for large
        images) or ``"3x3"`` (one 3×3 convolution of stride 1, for chips of about 32 pixels).
      dtype: compute dtype; parameters and batch statistics stay float32.
      axis_name: the ``pmap`` axis over which training batch statistics are reduced, or ``None``.
      attention: constructor of an attention module (:class:`~jaxatr.models.cbam.CBAM`) for every
        block of the last three stages, between the last batch norm and the addition of the
        shortcut; ``None`` for no attention.
      frozen: names of parts, such as ``"stem"`` or ``"stage1"``, whose batch norms use their
        running statistics during training too, without updating them.
    """

    stage_sizes: Sequence[int]
    block: type[nn.Module]
    width: int = 64
    stem: Literal["7x7", "3x3"] = "7x7"
    dtype: Any = jnp.float32
    axis_name: str | None = None
    attention: Attention | None = None
    frozen: Sequence[str] = ()

    @property
    def maps(self) -> tuple[str, ...]:
        """Names of the maps sown into the collection ``intermediates``: the stem's and stages'."""
        return ("map_stem", *(f"map_stage{i + 1}" for i in range(len(self.stage_sizes))))

    def __call__(
        self, images: Float[ArrayLike, "b h w c"], train: bool = False
    ) -> Float[Array, "b d"]:
        """Returns the features Z of the images.

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

        Args:
          images: normalised images, any size from 32 pixels, any number of channels.
          train: normalise by the batch's statistics, and update the running ones.
        """
        norm = self._norm("stem", train)
        x = jnp.asarray(images, self.dtype)
        if self.stem == "7x7":
            x = square(self.width, 7, 2, dtype=self.dtype, name="stem_conv")(x)
            x = nn.relu(norm(name="stem_norm")(x))
            x = kernels.max_pool(x, 3, 2, 1)
        elif self.stem == "3x3":
            x = square(self.width, 3, dtype=self.dtype, name="stem_conv")(x)
            x = nn.relu(norm(name="stem_norm")(x))
        else:
            raise ValueError(f"stem: got {self.stem!r}, wanted '7x7' or '3x3'")
        self.sow("intermediates", "map_stem", x)
        deltas: list[tuple[Array, ...]] = []
        stages: list[Array] = []
        for stage, blocks in enumerate(self.stage_sizes):
            changed = []
            norm = self._norm(f"stage{stage + 1}", train)
            for index in range(blocks):
                x = self.block(
                    self.width * 2**stage,
                    stride=2 if stage > 0 and index == 0 else 1,
                    norm=norm,
                    dtype=self.dtype,
                    attention=self.attention if stage > 0 else None,
                    name=f"stage{stage + 1}_block{index + 1}",
                )(x)
                if isinstance(x, tuple):
                    x, delta = x
                    changed.append(delta)
            deltas.append(tuple(changed))
            stages.append(x)
            self.sow("intermediates", f"map_stage{stage + 1}", x)
        features = jnp.mean(x, axis=(1, 2), dtype=jnp.float32)
        return AttendedFeatures(features, tuple(deltas[1:]), tuple(stages[1:]), stages[0])

    def _norm(self, part: str, train: bool) -> Norm:
        return batch_norm(self, train and not any(is_of(part, name) for name in self.frozen))


class BatchNorm(QuickParameters, nn.BatchNorm):
    """``flax.linen.BatchNorm``."""


def batch_norm(module: Any, train: bool) -> Norm:
    """Returns the constructor of a network's batch norm.

    Args:
      module: the network, whose attributes ``dtype`` and ``axis_name`` are used.
      train: normalise by the batch's statistics, and update the running ones.
    """
    return partial(
        BatchNorm,
        use_running_average=not train,
        momentum=0.9,
        epsilon=1e-5,
        dtype=module.dtype,
        axis_name=module.axis_name if train and not module.is_initializing() else None,
    )


ResNet18 = partial(ResNet, stage_sizes=(2, 2, 2, 2), block=BasicBlock)
ResNet34 = partial(ResNet, stage_sizes=(3, 4, 6, 3), block=BasicBlock)
ResNet50 = partial(ResNet, stage_sizes=(3, 4, 6, 3), block=Bottleneck)
ResNet50V1 = partial(ResNet, stage_sizes=(3, 4, 6, 3), block=BottleneckV1)
ResNet101 = partial(ResNet, stage_sizes=(3, 4, 23, 3), block=Bottleneck)
