"""Solvers of a fused sequence: XLA, or a kernel of one's own."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp

from jaxatr.kernels.contrib.fusion.graph import Constraint, Edge, ordered_edges
from jaxatr.kernels.contrib.fusion.operations import (
    Activation,
    Arguments,
    BatchNorm,
    Convolution,
    FusionProblem,
    Operation,
    forward,
)
from jaxatr.kernels.device import Device as Target
from jaxatr.kernels.ops.convolution.solvers import pallas
from jaxatr.kernels.pallas import Device, kernel, runs_on
from jaxatr.kernels.pallas.epilogue import Epilogue, folded
from jaxatr.typing import Array


@dataclasses.dataclass(frozen=True)
class FusionSolver:
    """A solver for fused sequences.

    Attributes:
      platforms: where it runs; empty for everywhere.
      edges: its constraint graph.
      run: ``(operations, arguments) -> result``.
      runs_on: says whether a device of such a platform will do.
    """

    platforms: tuple[str, ...]
    edges: tuple[Edge, ...]
    run: Callable[..., Array]
    runs_on: Callable[[Target], bool] = lambda _: True


_FLOATING = Constraint(
    "a floating-point type", lambda _, problem: jnp.issubdtype(problem.dtype, jnp.floating)
)
_KERNEL = Constraint("w_shape in the problem", lambda _, problem: problem.w_shape is not None)


def run_xla(operations: Sequence[Operation], arguments: Arguments) -> Array:
    """Applies the operations in turn, for XLA to fuse what follows a convolution into one pass.

    After the first operation everything is float32 or wider, as in a kernel's accumulator.
    """
    x = y = arguments["x"]
    for operation in operations:
        y = operation.apply(y, arguments)
        y = y.astype(jnp.promote_types(y.dtype, jnp.float32))
    return y.astype(x.dtype)


def run_kernel(device: Device, operations: Sequence[Operation], arguments: Arguments) -> Array:
    """Turns what follows a convolution into an epilogue, and runs the kernel."""
    convolution: Any
    convolution, *rest = operations
    x, w = arguments["x"], arguments["w"]
    norm = next((o for o in rest if isinstance(o, BatchNorm)), None)
    bias = arguments.get("bias")
    if norm is None:
        scale, shift = None, bias
    else:
        scale, shift = folded(
            arguments["scale"],
            arguments["shift"],
            arguments["mean"],
            arguments["variance"],
            norm.epsilon,
            bias,
        )
    name = next((o.name for o in rest if isinstance(o, Activation)), "none")
    residual = arguments.get("residual")
    epilogue = Epilogue(scale is not None, shift is not None, residual is not None, name)
    rows = pallas.rows_of(forward(convolution, FusionProblem(x.shape, w.shape, x.dtype.name)))
    x = x[:, :: convolution.stride[0], :: convolution.stride[1]]
    module = kernel(device, "convolution")
    return module.convolution(x, w, rows, epilogue, scale, shift, residual)


def _kernel_solver(device: Device, platforms: tuple[str, ...], sizes: str) -> FusionSolver:
    plain = Constraint(
        "stride 1 (any for 1x1 without padding), dilation 1, one group",
        lambda o, p: pallas.is_plain(forward(o, p)),
    )
    fits = Constraint(sizes, lambda o, p: pallas.fits(device, forward(o, p)))
    known = Constraint(
        "mode spatial and known statistics", lambda o, _: o.mode == "spatial" and not o.training
    )
    constraints = {Convolution: (_KERNEL, plain, fits), BatchNorm: (known,)}
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
    "hopper": _kernel_solver(
        "hopper", ("gpu", "cuda"), "bfloat16 or float16, channels and features multiples of 64"
    ),
    "tpu": _kernel_solver(
        "tpu",
        ("tpu",),
        "bfloat16 or float32, channels and features multiples of 128, an image that fits in VMEM",
    ),
}
