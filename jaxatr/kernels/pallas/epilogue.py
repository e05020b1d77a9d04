"""The arithmetic on a tile of results before it leaves the chip.

An epilogue is ordinary arithmetic on an array, so that every kernel can call it on its accumulator,
whatever the hardware.
"""

import dataclasses

import jax

from jaxatr.kernels.activations import ACTIVATIONS, check_activation
from jaxatr.typing import Array, Float


@dataclasses.dataclass(frozen=True)
class Epilogue:
    """``activation(scale * a + shift + residual)``, each part but the last optional.

    A bias is a shift; a folded batch norm is a scale and a shift (see :func:`folded`).

    Attributes:
      scale: whether each feature has a factor.
      shift: whether each feature has a summand.
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
        """Returns the finished tile; what the epilogue does not have is None."""
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
    """Returns the factor and summand that a batch norm with known statistics comes down to.

    Args:
      scale: the norm's gamma.
      shift: its beta.
      mean: of each feature.
      variance: of each feature.
      epsilon: added to the variance.
      bias: added to the features before the norm.
    """
    factor = scale * jax.lax.rsqrt(variance + epsilon)
    before = mean if bias is None else mean - bias
    return factor, shift - before * factor
