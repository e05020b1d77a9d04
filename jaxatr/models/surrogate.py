"""The surrogate of a target network: a student and an explanation network.

Lee and Kim (2021), "Explaining Neural Networks Using Attentive Knowledge Distillation", sections
3.3 and 3.4 and figure 4. The student scores the images; the explanation network decodes the
changes that the student's attention made in three maps into a saliency map.
"""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxatr.models.convolution import square
from jaxatr.models.resnet import Norm, batch_norm
from jaxatr.models.student import Student, StudentOutput
from jaxatr.typing import Array, ArrayLike, Float


class SurrogateOutput(NamedTuple):
    """The outputs of a surrogate for a batch.

    Attributes:
      logits: ``[b, k]``, of the student.
      saliency: the map H, ``[b, h, w]`` in [0, 1], float32, one value per pixel of the images.
      deltas: Δf of the student's last three stages, the finest first, each ``[b, h', w', f]``.
    """

    logits: Float[Array, "b k"]
    saliency: Float[Array, "b h w"]
    deltas: tuple[Array, ...]


class Upsample(nn.Module):
    """3×3 convolution, bilinear interpolation, 3×3 convolution (figure 4, right).

    The paper only mentions "convolutional and interpolation layers"; their number and sizes, and
    batch norm and ReLU after each convolution, are this package's choice.

    Attributes:
      features: channels of the result.
      norm: constructor of batch norm.
      dtype: compute dtype.
    """

    features: int
    norm: Norm
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, x: Float[Array, "b h w c"], size: tuple[int, int]
    ) -> Float[Array, "b h2 w2 f"]:
        """Returns a map of ``size`` (rows, columns)."""
        x = square(self.features, 3, dtype=self.dtype, name="conv1")(x)
        x = _interpolated(nn.relu(self.norm(name="norm1")(x)), size)
        x = square(self.features, 3, dtype=self.dtype, name="conv2")(x)
        return nn.relu(self.norm(name="norm2")(x))


class ExplanationNetwork(nn.Module):
    """The explanation network, which maps Δf at several scales to a saliency map.

    The first upsample block takes the coarsest Δf; each later block takes the previous block's
    output concatenated with the Δf of that size. The last block doubles the size of the finest Δf.
    A 1×1 convolution reduces its output to one channel, which is interpolated to the images' size.
    The sigmoid comes last, so that the edges of salient regions stay sharp.

    Attributes:
      width: channels of the last upsample block; the channels double with each earlier block.
      dtype: compute dtype; the last two steps are in float32.
      axis_name: the ``pmap`` axis over which training batch statistics are reduced, or ``None``.
    """

    width: int = 64
    dtype: Any = jnp.float32
    axis_name: str | None = None

    @nn.compact
    def __call__(
        self, deltas: tuple[Array, ...], size: tuple[int, int], train: bool = False
    ) -> Float[Array, "b h w"]:
        """Returns the saliency map.

        Args:
          deltas: maps ``[b, h', w', f]``, the finest first.
          size: rows and columns of the images.
          train: normalise by the batch's statistics, and update the running ones.
        """
        norm = batch_norm(self, train)
        rows, columns = deltas[0].shape[1:3]
        last = (min(2 * rows, size[0]), min(2 * columns, size[1]))
        sizes = [last, *(delta.shape[1:3] for delta in deltas)]  # output size of each block
        x: Array | None = None
        for level in reversed(range(len(deltas))):
            delta = deltas[level].astype(self.dtype)
            x = delta if x is None else jnp.concatenate([x, delta], axis=-1)
            block = f"upsample{len(deltas) - level}"
            x = Upsample(self.width * 2**level, norm, self.dtype, name=block)(x, sizes[level])
        score = nn.Dense(1, name="score")(x)
        return nn.sigmoid(_interpolated(score, size))[..., 0]


class Surrogate(nn.Module):
    """Student and explanation network (figure 2), with parameters ``student`` and ``explainer``.

    Attributes:
      student: classifies images and returns Δf.
      explainer: maps Δf to saliency maps.
    """

    student: Student
    explainer: ExplanationNetwork

    def __call__(
        self,
        images: Float[ArrayLike, "b h w c"],
        train: bool = False,
        end_to_end: bool = False,
    ) -> SurrogateOutput:
        """Returns logits and saliency maps.

        Args:
          images: normalised images, any size from 32 pixels.
          train: the explanation network normalises by the batch's statistics and updates its
            running ones.
          end_to_end: train the student too (equation 10): ``train`` applies to it as well, and
            gradients of the saliency map reach it through Δf. Otherwise the student is fixed
            (equation 3): it uses its running statistics, and gradients stop at Δf.
        """
        logits, _, deltas = self.student(images, train=train and end_to_end)
        if not end_to_end:
            deltas = jax.lax.stop_gradient(deltas)
        _, rows, columns, _ = jnp.shape(images)
        saliency = self.explainer(deltas, (rows, columns), train=train)
        return SurrogateOutput(logits, saliency, deltas)

    def classify(self, images: Float[ArrayLike, "b h w c"], train: bool = False) -> StudentOutput:
        """Returns the student's output only, for its training and for scoring images."""
        return self.student(images, train=train)


def _interpolated(x: Float[Array, "b h w c"], size: tuple[int, int]) -> Float[Array, "b h2 w2 c"]:
    return jax.image.resize(x, (x.shape[0], *size, x.shape[-1]), "bilinear")
