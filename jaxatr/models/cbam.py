"""Channel attention followed by spatial attention: CBAM (Woo et al. 2018), NHWC.

"CBAM: Convolutional Block Attention Module". Details that the paper leaves open (biases of the
perceptron, batch norm of the spatial gate and its initial scale) follow the authors' code.
"""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxatr.models.convolution import square
from jaxatr.models.resnet import Norm
from jaxatr.typing import Array, Float


class CBAM(nn.Module):
    """Scales a map by a gate for each channel and then by a gate for each pixel, both in [0, 1].

    The channel gate is the sigmoid of the sum of a two-layer perceptron's outputs for the channels'
    means and for their maxima. The spatial gate is the sigmoid of batch norm of a 7×7 convolution
    over each pixel's maximum and mean after the channel gate. Its batch norm starts with a scale of
    0, as in the authors' code, so that the spatial gate is initially 0.5 everywhere.

    Attributes:
      norm: constructor of the network's batch norm.
      dtype: of the map and the convolution; the channel gate is computed in float32.
      reduction: ratio of the map's channels to the perceptron's hidden units, of which there is at
        least one: a map of fewer than 32 channels has a single hidden unit.
      openness: initial logit of both gates, in addition to what their random weights give. At 0, as
        in the authors' code, the module passes about a quarter of the map.
    """

    norm: Norm
    dtype: Any = jnp.float32
    reduction: int = 16
    openness: float = 0.0

    @nn.compact
    def __call__(self, x: Float[Array, "b h w c"]) -> Float[Array, "b h w c"]:
        """Returns the scaled map."""
        x = x * self._channel_gate(x).astype(self.dtype)
        return x * self._spatial_gate(x).astype(self.dtype)

    def _channel_gate(self, x: Float[Array, "b h w c"]) -> Float[Array, "b 1 1 c"]:
        hidden = nn.Dense(max(1, x.shape[-1] // self.reduction), name="channel_hidden")
        bias = nn.initializers.constant(self.openness / 2)  # counts for the means and the maxima
        out = nn.Dense(x.shape[-1], bias_init=bias, name="channel_out")
        pixels = x.reshape(x.shape[0], -1, 1, x.shape[-1])
        mean = jnp.mean(pixels, axis=1, keepdims=True, dtype=jnp.float32)
        largest = _maximum(pixels, 1).astype(jnp.float32)
        return nn.sigmoid(out(nn.relu(hidden(mean))) + out(nn.relu(hidden(largest))))

    def _spatial_gate(self, x: Float[Array, "b h w c"]) -> Float[Array, "b h w 1"]:
        pooled = jnp.concatenate([_maximum(x, -1), jnp.mean(x, axis=-1, keepdims=True)], axis=-1)
        y = square(1, 7, dtype=self.dtype, name="spatial_conv")(pooled)
        norm = self.norm(
            name="spatial_norm",
            scale_init=nn.initializers.zeros,
            bias_init=nn.initializers.constant(self.openness),
        )
        return nn.sigmoid(norm(y))


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _maximum(x: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    """Returns the maximum over an axis, keeping it; its gradient goes to the first maximum.

    ``jnp.max`` divides the gradient among all values equal to the maximum. If XLA recomputes the
    values with different rounding, none is equal, and the gradient is 0 / 0.
    """
    return jnp.max(x, axis=axis, keepdims=True)


@_maximum.defjvp
def _maximum_jvp(axis, primals, tangents):
    (x,), (dx,) = primals, tangents
    first = jnp.argmax(x, axis=axis, keepdims=True)
    at_first = jax.lax.broadcasted_iota(first.dtype, x.shape, axis % x.ndim) == first
    return _maximum(x, axis), jnp.sum(dx, axis=axis, keepdims=True, where=at_first)
