"""Epilogues: arithmetic on a tile of results before it is written to memory.

An epilogue is ordinary array arithmetic that a kernel on any hardware can apply to its accumulator.
"""

import dataclasses

import jax

from jaxatr.kernels.activations import ACTIVATIONS, check_activation
from jaxatr.typing import Array, Float


@dataclasses.dataclass(frozen=True)
class Epilogue:
    """Computes ``activation(scale * a + shift + residual)``, where each part is optional.

    A bias is a shift; a folded batch norm is a scale and a shift (see :func:`folded`).

    Attributes:
      scale: whether features are scaled.
      shift: whether features are shifted.
      residual: whether an array of the result's shape is added.
      activation: a name of :data:`~jaxatr.kernels.activations.ACTIVATIONS`.
    """

    scale: bool = False
    shift: bool = False
    residual: bool = False
    activation: str = "none"

    def __post_init__(self) -> None:
        """Checks the activation's name."""
        check_activation(self.activation)

    def __call__(
        self,
        a: Float[Array, "m n"],
        scale: Float[Array, "#m n"] | None,
        shift: Float[Array, "#m n"] | None,
        residual: Float[Array, "m n"] | None,
    ) -> Float[Array, "m n"]:
        """Applies the epilogue to a tile; the arguments of absent parts are None."""
        if scale is not None:
            a = a * scale
        if shift is not None:
            a = a + shift
        if residual is not None:
            a = a + residual.astype(a.dtype)
        return ACTIVATIONS[self.activation](a)


def folded(
    scale: Float[Array, " n"],
    shift: Float[Array, " n"],
    mean: Float[Array, " n"],
    variance: Float[Array, " n"],
    epsilon: float,
    bias: Float[Array, " n"] | None = None,
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Folds a batch norm with known statistics into a scale and a shift.

    Args:
      scale: the norm's gamma.
      shift: the norm's beta.
      mean: mean of each feature.
      variance: variance of each feature.
      epsilon: added to the variance.
      bias: added to the features before the norm.
    """
    factor = scale * jax.lax.rsqrt(variance + epsilon)
    before = mean if bias is None else mean - bias
    return factor, shift - before * factor
