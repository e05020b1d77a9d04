"""The operations of a fusion plan and the arguments that each of them reads."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, TypeAlias

import jax.numpy as jnp

from jaxatr.kernels.activations import ACTIVATIONS, check_activation
from jaxatr.kernels.ops.batch_norm import MODES, Mode, batch_norm, batch_statistics
from jaxatr.kernels.ops.convolution import convolution
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.windows import Pair, Shape, pair
from jaxatr.typing import Array

Arguments: TypeAlias = Mapping[str, Array]


@dataclasses.dataclass(frozen=True)
class Convolution:
    """A two-dimensional convolution; reads ``w``, ``[kh, kw, c / groups, f]``.

    Attributes:
      stride: rows and columns between neighbouring results.
      padding: ``((top, bottom), (left, right))`` zeros around the image.
      dilation: rows and columns between neighbouring taps.
      groups: number of independent groups of channels.
    """

    letter: ClassVar[str] = "C"
    stride: Pair = (1, 1)
    padding: tuple[Pair, Pair] = ((0, 0), (0, 0))
    dilation: Pair = (1, 1)
    groups: int = 1

    def __post_init__(self) -> None:
        """Checks that all fields are written out, so that equal operations compare equal."""
        for name, least in (("stride", 1), ("dilation", 1)):
            if pair(name, value := getattr(self, name), least) != value:
                raise ValueError(f"{name}: got {value!r}, wanted (rows, columns)")
        try:
            written_out = tuple(pair("padding", both, 0) for both in self.padding) == self.padding
        except (TypeError, ValueError):
            written_out = False
        if not written_out or len(self.padding) != 2:
            raise ValueError(
                f"padding: got {self.padding!r}, wanted ((top, bottom), (left, right)), all >= 0"
            )

    def reads(self, y: Shape) -> dict[str, Shape]:
        """Returns nothing, because the kernel's shape is part of the problem."""
        del y
        return {}

    def apply(self, y: Array, arguments: Arguments) -> Array:
        """Returns the convolution."""
        return convolution(
            y,
            arguments["w"],
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
        )


@dataclasses.dataclass(frozen=True)
class Bias:
    """Adds ``bias``, ``[f]``."""

    letter: ClassVar[str] = "B"

    def reads(self, y: Shape) -> dict[str, Shape]:
        """Returns the shape of the bias."""
        return {"bias": y[-1:]}

    def apply(self, y: Array, arguments: Arguments) -> Array:
        """Returns the sum."""
        return y + arguments["bias"].astype(y.dtype)


@dataclasses.dataclass(frozen=True)
class BatchNorm:
    """Batch norm; reads ``scale`` and ``shift``, and ``mean`` and ``variance`` unless training.

    Attributes:
      mode: ``"spatial"`` or ``"per_activation"``.
      training: normalises by the batch's statistics.
      epsilon: added to the variance.
    """

    letter: ClassVar[str] = "N"
    mode: Mode = "spatial"
    training: bool = False
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        """Checks the mode."""
        if self.mode not in MODES:
            raise ValueError(f"mode: got {self.mode!r}, wanted one of {list(MODES)}")

    def reads(self, y: Shape) -> dict[str, Shape]:
        """Returns the shapes of the parameters and statistics."""
        shape = y[-1:] if self.mode == "spatial" else y[1:]
        names = ("scale", "shift") if self.training else ("scale", "shift", "mean", "variance")
        return dict.fromkeys(names, shape)

    def apply(self, y: Array, arguments: Arguments) -> Array:
        """Returns the normalised features."""
        if self.training:
            mean, variance = batch_statistics(y, mode=self.mode)
        else:
            mean, variance = arguments["mean"], arguments["variance"]
        return batch_norm(
            y,
            arguments["scale"],
            arguments["shift"],
            mean,
            variance,
            mode=self.mode,
            epsilon=self.epsilon,
        )


@dataclasses.dataclass(frozen=True)
class Residual:
    """Adds ``residual``, which has the shape of the result."""

    letter: ClassVar[str] = "R"

    def reads(self, y: Shape) -> dict[str, Shape]:
        """Returns the shape of the residual."""
        return {"residual": y}

    def apply(self, y: Array, arguments: Arguments) -> Array:
        """Returns the sum."""
        return y + arguments["residual"].astype(y.dtype)


@dataclasses.dataclass(frozen=True)
class Activation:
    """Applies an activation, named as in :data:`~jaxatr.kernels.activations.ACTIVATIONS`."""

    letter: ClassVar[str] = "A"
    name: str = "relu"

    def __post_init__(self) -> None:
        """Checks the name."""
        check_activation(self.name)

    def reads(self, y: Shape) -> dict[str, Shape]:
        """Returns nothing."""
        del y
        return {}

    def apply(self, y: Array, arguments: Arguments) -> Array:
        """Returns the activated features."""
        del arguments
        return ACTIVATIONS[self.name](y)


Operation: TypeAlias = Convolution | Bias | BatchNorm | Residual | Activation


@dataclasses.dataclass(frozen=True)
class FusionProblem:
    """The shapes and the type that a plan is compiled for.

    Attributes:
      x_shape: ``(batch, height, width, channels)``.
      w_shape: ``(kernel height, kernel width, channels / groups, features)``, or None if the plan
        has no convolution.
      dtype: name of the type of the images, of ``w`` and of the result; vectors may be float32.
    """

    x_shape: Shape
    w_shape: Shape | None = None
    dtype: str = "float32"

    def __post_init__(self) -> None:
        """Checks the lengths of the shapes and the name of the type."""
        for name, shape in (("x_shape", self.x_shape), ("w_shape", self.w_shape)):
            if shape is not None and len(shape) != 4:
                raise ValueError(f"{name}: got {shape}, wanted four numbers")
        try:
            jnp.dtype(self.dtype)
        except TypeError:
            raise ValueError(f"dtype: got {self.dtype!r}, wanted the name of a type") from None


def forward(operation: Convolution, problem: FusionProblem) -> ConvProblem:
    """Returns the problem of a plan's convolution by itself."""
    return ConvProblem(
        direction="forward",
        x_shape=problem.x_shape,
        w_shape=problem.w_shape or (),
        stride=operation.stride,
        padding=operation.padding,
        dilation=operation.dilation,
        groups=operation.groups,
        dtype=problem.dtype,
    )
