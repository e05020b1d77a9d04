"""A conditional generative adversarial network for chips of 32 or 64 pixels (G-OpenMax).

The generator takes a *mixture* of classes, so that it can generate images between classes, which
serve as unknown classes in Ge et al. (2017), "Generative OpenMax for Multi-Class Open Set
Classification", section 3.1.
"""

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxatr import kernels
from jaxatr.typing import Array, ArrayLike, Float

_FIRST = 4  # side in pixels of the generator's first map and of the discriminator's last


def check_size(size: int) -> int:
    """Returns the number of doublings from 4 pixels to ``size``.

    Raises:
      ValueError: ``size`` is not a power of two, or less than 16.
    """
    doublings = round(math.log2(max(size, 1) / _FIRST))
    if doublings < 2 or _FIRST * 2**doublings != size:
        raise ValueError(
            f"size: got {size}, wanted a power of two of at least 16 (such as data.size=64)"
        )
    return doublings


class Generator(nn.Module):
    """Maps noise and a mixture of classes to an image in [-1, 1].

    Attributes:
      size: height and width of the image.
      channels: of the image.
      width: channels of the last hidden map, a multiple of 8; the channels double with each earlier
        map, up to 8 times ``width``.
    """

    size: int
    channels: int
    width: int = 32

    @nn.compact
    def __call__(
        self, noise: Float[ArrayLike, "b d"], mixture: Float[ArrayLike, "b k"]
    ) -> Float[Array, "b h w c"]:
        """Generates an image for each row.

        Args:
          noise: standard normal.
          mixture: weights of the classes, which sum to one; one-hot for a single class.

        Raises:
          ValueError: ``size`` or ``width`` is invalid.
        """
        if self.width < 8 or self.width % 8:
            raise ValueError(f"width: got {self.width}, wanted a multiple of 8")
        doublings = check_size(self.size)
        noise = jnp.asarray(noise)
        classes = nn.Dense(noise.shape[-1], use_bias=False, name="classes")(jnp.asarray(mixture))
        x = jnp.concatenate([noise, classes], axis=-1)
        first = self.width * min(8, 2 ** (doublings - 1))
        x = nn.Dense(_FIRST * _FIRST * first, name="first")(x)
        x = x.reshape(-1, _FIRST, _FIRST, first)
        for block in range(doublings):
            features = self.width * min(8, 2 ** (doublings - 1 - block))
            x = _doubled(nn.relu(nn.GroupNorm(num_groups=8, name=f"norm{block}")(x)))
            x = _conv(features, 3, name=f"conv{block}")(x)
        x = nn.relu(nn.GroupNorm(num_groups=8, name="last_norm")(x))
        return jnp.tanh(_conv(self.channels, 3, name="image")(x))


class Discriminator(nn.Module):
    """Maps an image and its class to a logit; real images have higher logits.

    Uses spectral normalisation (Miyato et al. 2018) and class projection (Miyato and Koyama 2018).

    Attributes:
      size: height and width of the image.
      num_classes: k.
      width: channels of the first map; the channels double with each later map, up to 8 times
        ``width``.
    """

    size: int
    num_classes: int
    width: int = 32

    @nn.compact
    def __call__(
        self, images: Float[ArrayLike, "b h w c"], mixture: Float[ArrayLike, "b k"], train: bool
    ) -> Float[Array, " b"]:
        """Returns the logits.

        Args:
          images: in [-1, 1].
          mixture: weights of the classes, which sum to one.
          train: do one step of the power iteration, whose vectors are kept in ``batch_stats``.
        """

        def normalized(layer: nn.Module, x: Array) -> Array:
            return nn.SpectralNorm(layer, collection_name="batch_stats")(x, update_stats=train)

        x = jnp.asarray(images)
        for block in range(check_size(self.size)):
            features = self.width * min(8, 2**block)
            conv = _conv(features, 4, strides=2, name=f"conv{block}")
            x = nn.leaky_relu(normalized(conv, x), 0.2)
        x = jnp.mean(x, axis=(1, 2))
        classes = nn.Dense(x.shape[-1], use_bias=False, name="classes")
        logit = normalized(nn.Dense(1, name="real"), x)[:, 0]
        return logit + jnp.sum(normalized(classes, jnp.asarray(mixture)) * x, axis=-1)


def _conv(features: int, size: int, **options: Any) -> nn.Conv:
    return nn.Conv(features, (size, size), conv_general_dilated=_convolved, **options)


def _convolved(x, kernel, strides, padding, *, rhs_dilation, feature_group_count, **_):
    return kernels.convolution(
        x,
        kernel,
        stride=strides,
        padding=padding,
        dilation=rhs_dilation,
        groups=feature_group_count,
    )


def _doubled(x: Float[Array, "b h w c"]) -> Float[Array, "b h2 w2 c"]:
    b, h, w, c = x.shape
    return jax.image.resize(x, (b, 2 * h, 2 * w, c), "nearest")
