"""The attentive student: a classifier that exposes the changes made by its attention.

Lee and Kim (2021), "Explaining Neural Networks Using Attentive Knowledge Distillation", section 3.3
and figure 3.
"""

from typing import Literal, NamedTuple

import flax.linen as nn

from jaxatr.models.mobile import MobileNet
from jaxatr.models.resnet import ResNet
from jaxatr.typing import Array, ArrayLike, Float


class StudentOutput(NamedTuple):
    """The student's outputs on a batch.

    Attributes:
      logits: ``[b, k]``.
      features: ``[b, d]``, before the classifier.
      deltas: Δf of the last three stages, the finest first, each ``[b, h, w, f]``; or the stages'
        outputs (:attr:`Student.deltas`).
    """

    logits: Float[Array, "b k"]
    features: Float[Array, "b d"]
    deltas: tuple[Array, ...]


class Student(nn.Module):
    """A network with attention in its last three stages, and a classifier on top.

    Every block of those stages has an attention module: 4, 6 and 3 of them in ResNet-50, the
    paper's "3–6". The paper passes on Δf "from the three layers at different scales", one for each
    stage, without specifying which module of a stage: here the last one, which has seen the whole
    stage, or the sum over all. Networks of inverted residuals, which the paper does not use, have
    more stages than map sizes; each of the three smallest map sizes then counts as a stage.

    Attributes:
      backbone: a built-in network with attention.
      num_classes: k.
      head_bias: whether the classifier has a bias.
      deltas: Δf of a stage: that of its ``"last"`` attention module, or the ``"sum"`` over all of
        them. ``"features"``, which is not from the paper, is the stage's output, which contains the
        student's full features, not only the change made by attention.
    """

    backbone: ResNet | MobileNet
    num_classes: int
    head_bias: bool = True
    deltas: Literal["last", "sum", "features"] = "last"

    @nn.compact
    def __call__(self, images: Float[ArrayLike, "b h w c"], train: bool = False) -> StudentOutput:
        """Returns logits, features and Δf.

        Raises:
          ValueError: the backbone has no attention, or ``deltas`` is invalid.
        """
        if self.backbone.attention is None:
            raise ValueError("backbone: got a network without attention, wanted attention=CBAM")
        if self.deltas not in ("last", "sum", "features"):
            raise ValueError(f"deltas: got {self.deltas!r}, wanted 'last', 'sum' or 'features'")
        seen = self.backbone.attended(images, train=train)
        closed = nn.Dense(self.num_classes, use_bias=self.head_bias, name="closed_head")
        if self.deltas == "features":
            deltas = seen.stages
        elif self.deltas == "last":
            deltas = tuple(stage[-1] for stage in seen.deltas)
        else:
            deltas = tuple(sum(stage[1:], stage[0]) for stage in seen.deltas)
        return StudentOutput(closed(seen.features), seen.features, deltas)
