"""The explanation network and its join with the student: the surrogate of a target network.

Lee and Kim (2021), "Explaining Neural Networks Using Attentive Knowledge Distillation", sections
3.3 and 3.4 and figure 4. The student scores the images; the changes that its attention made in
three maps are decoded into a saliency map.
"""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxatr import parallel
from jaxatr.models.resnet import Conv, Norm, batch_norm
from jaxatr.models.student import Student, StudentOutput
from jaxatr.typing import Array, ArrayLike, Float


class SurrogateOutput(NamedTuple):
    """The outputs of a surrogate for a batch.

    Attributes:
      logits: ``[b, k]``, of the student.
      saliency: ``[b, h, w]`` in [0, 1], float32: H, one value for each pixel of the images.
      deltas: Δf of the student's last three stages, the finest first, each ``[b, h', w', f]``.
    """

    logits: Float[Array, "b k"]
    saliency: Float[Array, "b h w"]
    deltas: tuple[Array, ...]


class Upsample(nn.Module):
    """3×3 convolution, bilinear interpolation, 3×3 convolution (figure 4, right).

    The paper names "convolutional and interpolation layers" and no more; how many there are, their
    sizes, and batch norm and ReLU after each convolution are this package's choice.

    Attributes:
      features: channels of the result.
      norm: constructor of batch norm.
      dtype: of the computation.
    """

    features: int
    norm: Norm
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, x: Float[Array, "b h w c"], size: tuple[int, int]
    ) -> Float[Array, "b h2 w2 f"]:
        """Returns a map of ``size`` (rows, columns)."""
        x = Conv(self.features, 3, dtype=self.dtype, name="conv1")(x)
        x = _interpolated(nn.relu(self.norm(name="norm1")(x)), size)
        x = Conv(self.features, 3, dtype=self.dtype, name="conv2")(x)
        return nn.relu(self.norm(name="norm2")(x))


class ExplanationNetwork(nn.Module):
    """The explanation network: Δf at several scales to a saliency map.

    The first upsample block takes the coarsest Δf, each further one the block before and the Δf of
    that size, side by side. The last one doubles the finest Δf's size. A 1×1 convolution makes one
    channel of its map, which is interpolated to the images' size; a sigmoid comes last, so that the
    edges of what is salient stay sharp.

    Attributes:
      width: channels of the last upsample block; each earlier one has twice as many.
      dtype: of the computation; the last two steps are in float32.
      axis_name: the ``pmap`` axis over which training batch statistics are reduced, or ``None``.
    """

    width: int = 64
    dtype: Any = jnp.float32
    axis_name: str | None = parallel.AXIS

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
        sizes = [last, *(delta.shape[1:3] for delta in deltas)]  # what each block grows to
        x: Array | None = None
        for level in reversed(range(len(deltas))):
            delta = deltas[level].astype(self.dtype)
            x = delta if x is None else jnp.concatenate([x, delta], axis=-1)
            block = f"upsample{len(deltas) - level}"
            x = Upsample(self.width * 2**level, norm, self.dtype, name=block)(x, sizes[level])
        score = nn.Dense(1, name="score")(x)
        return nn.sigmoid(_interpolated(score, size))[..., 0]


class Surrogate(nn.Module):
    """Student and explanation network (figure 2); its parameters are ``student`` and ``explainer``.

    Attributes:
      student: classifies, and hands out Δf.
      explainer: makes saliency maps of them.
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
          end_to_end: the student trains as well (equation 10): it normalises as ``train`` says, and
            the gradient of the saliency map reaches it through Δf. Otherwise it is as it was
            trained before (equation 3): running statistics, and no gradient through Δf.
        """
        logits, _, deltas = self.student(images, train=train and end_to_end)
        if not end_to_end:
            deltas = jax.lax.stop_gradient(deltas)
        _, rows, columns, _ = jnp.shape(images)
        saliency = self.explainer(deltas, (rows, columns), train=train)
        return SurrogateOutput(logits, saliency, deltas)

    def classify(self, images: Float[ArrayLike, "b h w c"], train: bool = False) -> StudentOutput:
        """Returns the student's output alone: what it is trained by, and what scores images."""
        return self.student(images, train=train)


def _interpolated(x: Float[Array, "b h w c"], size: tuple[int, int]) -> Float[Array, "b h2 w2 c"]:
    return jax.image.resize(x, (x.shape[0], *size, x.shape[-1]), "bilinear")
