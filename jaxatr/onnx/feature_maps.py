"""An ONNX model as a linen module whose feature maps can be read and replaced."""

from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxatr.onnx.reader.model import OnnxModel
from jaxatr.onnx.reader.program import Call
from jaxatr.typing import Array, ArrayLike, Float, PyTree


class FeatureMap(nn.Module):
    """The identity of a feature map ``[b, h, w, c]``, for ``nn.intercept_methods`` to intercept."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Returns x."""
        return x


class Network(nn.Module):
    """Maps images to one output of a model, and passes every feature map through a submodule.

    The submodules are named after their nodes, as
    :func:`jaxatr.explain.two_parts.in_two_parts` requires. The variables are an argument; the
    module has none of its own.

    Attributes:
      model: the loaded model.
      index: index of the output.
      layout: layout of the images that the model takes, and of its feature maps.
    """

    model: OnnxModel
    index: int = 0
    layout: Literal["NCHW", "NHWC"] = "NCHW"

    @nn.compact
    def __call__(
        self, images: Float[ArrayLike, "b h w c"], variables: PyTree
    ) -> Float[Array, "b ..."]:
        """Returns the output, float32."""
        images = jnp.asarray(images, jnp.float32)
        if self.layout == "NCHW":
            images = jnp.transpose(images, (0, 3, 1, 2))
        # The caller is jitted outside `wide`, where 64-bit types cannot be lowered.
        out = self.model.apply(variables, images, keep_64_bit=False, each=self._seen)
        return (out[self.index] if isinstance(out, tuple) else out).astype(jnp.float32)

    def _seen(self, call: Call, results: tuple) -> tuple:
        first, *rest = results
        if not isinstance(first, jax.Array) or first.ndim != 4:
            return results
        if not jnp.issubdtype(first.dtype, jnp.floating):
            return results
        passed = FeatureMap(name=call.name.replace("/", "|"))  # slashes separate modules
        if self.layout == "NHWC":
            return (passed(first), *rest)
        return (jnp.moveaxis(passed(jnp.moveaxis(first, 1, -1)), -1, 1), *rest)
