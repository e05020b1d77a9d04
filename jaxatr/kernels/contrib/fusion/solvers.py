"""Solvers of fused sequences: XLA in two forms, and the Pallas kernels."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp

from jaxatr.kernels.contrib.fusion.graph import Constraint, Edge, ordered_edges
from jaxatr.kernels.contrib.fusion.operations import (
    Activation,
    Arguments,
    BatchNorm,
    Convolution,
    FusionProblem,
    Operation,
    Residual,
    forward,
)
from jaxatr.kernels.device import Device as Target
from jaxatr.kernels.ops.convolution.solvers import hopper, tpu
from jaxatr.kernels.pallas import Device, kernel, runs_on
from jaxatr.kernels.pallas.epilogue import Epilogue, folded
from jaxatr.typing import Array

#: How a solver rounds. ``"wide"``: everything after the convolution is computed in float32 or
#: wider, and rounded once at the end; ``xla`` also rounds the convolution's result. ``"narrow"``:
#: everything is computed in the problem's type, with the norm folded into the kernel; the compiler
#: may use more precision, and cuDNN does.
Accuracy: TypeAlias = Literal["wide", "narrow"]


@dataclasses.dataclass(frozen=True)
class FusionSolver:
    """A solver for fused sequences.

    Attributes:
      platforms: the platforms that it runs on; empty for all.
      edges: its constraint graph.
      run: ``(operations, arguments) -> result``, the computation.
      runs_on: ``device -> bool``, whether it runs on a device of its platforms.
      accuracy: its rounding (see :data:`Accuracy`).
    """

    platforms: tuple[str, ...]
    edges: tuple[Edge, ...]
    run: Callable[..., Array]
    runs_on: Callable[[Target], bool] = lambda _: True
    accuracy: Accuracy = "wide"


_FLOATING = Constraint(
    "a floating-point type", lambda _, problem: jnp.issubdtype(problem.dtype, jnp.floating)
)
_KERNEL = Constraint("w_shape in the problem", lambda _, problem: problem.w_shape is not None)


def run_xla(operations: Sequence[Operation], arguments: Arguments) -> Array:
    """Applies the operations in turn and leaves the fusion to XLA.

    The result of the first operation has the type of the images; what follows is computed in
    float32 or wider and rounded once at the end.
    """
    x = y = arguments["x"]
    for operation in operations:
        y = operation.apply(y, arguments)
        y = y.astype(jnp.promote_types(y.dtype, jnp.float32))
    return y.astype(x.dtype)


def run_folded(operations: Sequence[Operation], arguments: Arguments) -> Array:
    """Folds the norm into the kernel and the bias, and computes in the problem's type.

    On a GPU, XLA turns convolution, bias, residual input and ReLU into one cuDNN call if nothing in
    between changes the type. That call cannot scale features, hence the folding.
    """
    convolution: Any
    convolution, *rest = operations
    x, w = arguments["x"], arguments["w"]
    scale, shift = _affine(rest, arguments)
    if scale is not None:
        w = (w * scale).astype(w.dtype)
    y = convolution.apply(x, {"w": w})
    if shift is not None:
        y = y + shift.astype(y.dtype)
    for operation in rest:
        if isinstance(operation, Activation) and operation.name in _MAXIMA:
            y = _MAXIMA[operation.name](y)
        elif isinstance(operation, Residual | Activation):
            y = operation.apply(y, arguments)
    return y


# XLA's pattern for cuDNN needs a maximum. The functions of jax.nn are written as one and have the
# same derivatives as ACTIVATIONS.
_MAXIMA = {"relu": jax.nn.relu, "relu6": jax.nn.relu6}


def _affine(
    operations: Sequence[Operation], arguments: Arguments
) -> tuple[Array | None, Array | None]:
    """Returns the scale and shift that bias and norm amount to, each None if there is none."""
    norm = next((o for o in operations if isinstance(o, BatchNorm)), None)
    bias = arguments.get("bias")
    if norm is None:
        return None, bias
    scale, shift = arguments["scale"], arguments["shift"]
    return folded(scale, shift, arguments["mean"], arguments["variance"], norm.epsilon, bias)


def run_kernel(device: Device, operations: Sequence[Operation], arguments: Arguments) -> Array:
    """Turns the operations after the convolution into an epilogue and runs the Pallas kernel."""
    convolution: Any
    convolution, *rest = operations
    x, w = arguments["x"], arguments["w"]
    scale, shift = _affine(rest, arguments)
    name = next((o.name for o in rest if isinstance(o, Activation)), "none")
    residual = arguments.get("residual")
    epilogue = Epilogue(scale is not None, shift is not None, residual is not None, name)
    problem = forward(convolution, FusionProblem(x.shape, w.shape, x.dtype.name))
    if device == "tpu":
        x, geometry = x[:, :: convolution.stride[0], :: convolution.stride[1]], tpu.rows_of(problem)
    else:
        geometry = hopper.windows_of(problem)
    module = kernel(device, "convolution")
    return module.convolution(x, w, geometry, epilogue, scale, shift, residual)


_KNOWN = Constraint(
    "mode spatial and known statistics", lambda o, _: o.mode == "spatial" and not o.training
)


def _kernel_solver(
    device: Device, platforms: tuple[str, ...], solver: Any, geometry: str, sizes: str
) -> FusionSolver:
    plain = Constraint(geometry, lambda o, p: solver.is_plain(forward(o, p)))
    fits = Constraint(sizes, lambda o, p: solver.fits(forward(o, p)))
    constraints = {Convolution: (_KERNEL, plain, fits), BatchNorm: (_KNOWN,)}
    edges = ordered_edges((Convolution,), constraints)
    return FusionSolver(platforms, edges, partial(run_kernel, device), partial(runs_on, device))


SOLVERS = {
    "xla": FusionSolver(
        (),
        ordered_edges(
            (Convolution, BatchNorm), {Convolution: (_KERNEL, _FLOATING), BatchNorm: (_FLOATING,)}
        ),
        run_xla,
    ),
    "xla_folded": FusionSolver(
        (),
        ordered_edges((Convolution,), {Convolution: (_KERNEL, _FLOATING), BatchNorm: (_KNOWN,)}),
        run_folded,
        accuracy="narrow",
    ),
    "hopper": _kernel_solver(
        "hopper",
        ("gpu", "cuda"),
        hopper,
        "dilation 1, one group",
        "bfloat16, float16 or, unless full precision is asked for, float32; channels and features "
        "multiples of 64, at least 8 images (any number for 1x1 of stride 1)",
    ),
    "tpu": _kernel_solver(
        "tpu",
        ("tpu",),
        tpu,
        "stride 1 (any for 1x1 without padding), dilation 1, one group",
        "bfloat16 or float32, channels and features multiples of 128, an image that fits in VMEM",
    ),
}
