"""One Pallas kernel per step of an LSTM, with the derivative of :mod:`.algorithms.gemm`.

Hopper's kernel is for inference. If a layer is differentiated there, that module computes the
forward pass too: it is faster when the gates have to be saved.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxatr.kernels.ops.recurrent.algorithms.gemm import hoisted, merged
from jaxatr.kernels.ops.recurrent.cells import State, input_part, with_bias
from jaxatr.kernels.ops.recurrent.loop import loop
from jaxatr.kernels.ops.recurrent.problem import RecurrentProblem
from jaxatr.kernels.pallas import Device, kernel
from jaxatr.kernels.pallas.gates import grouped
from jaxatr.typing import Array


def applies(device: Device, problem: RecurrentProblem) -> bool:
    """Returns whether the cell is an LSTM of a size and type that the kernel supports.

    On Hopper, sequences must not be masked.
    """
    if problem.cell != "lstm" or (device == "hopper" and problem.masked):
        return False
    return kernel(device, "lstm").applies(problem.hidden, problem.dtype)


def run(device: Device, *layer: Any, unroll: int = 1, **options: Any) -> tuple[Array, State]:
    """Computes a layer (:class:`.algorithm.Algorithm`); further options go to the kernel."""
    return merged(partial(_forward, device, options))(*layer, unroll=unroll)


def _forward(device, options, problem, reverse, unroll, weights, x, state, mask, saves=True):
    if device == "hopper" and saves:
        return hoisted(problem, reverse, unroll, weights, x, state, mask)
    module = kernel(device, "lstm")
    group = partial(grouped, units=module.UNITS)
    if weights.w is None:
        part = group(input_part(problem, weights, x))
    else:
        part = input_part(problem, weights._replace(w=group(weights.w)), x)
    part = with_bias(part, None if weights.b is None else group(weights.b))
    recurrent = group(weights.r.astype(problem.dtype))
    h, c, part, mask = padded((*state, part, mask), module.rows(problem.dtype))

    if device == "hopper":
        layer = partial(module.layer, reverse=reverse, unroll=unroll, **options)
        hs, c = jax.custom_batching.sequential_vmap(layer)(
            h.astype(problem.dtype), c, recurrent, part
        )
        hs = hs[:, : problem.batch].astype(problem.wide)
        return (hs, None), (hs[0 if reverse else -1], c[: problem.batch]), ()

    def step(state: State, part: Array) -> tuple[State, tuple[Array, ...]]:
        h, c, gates = module.step(*state, recurrent, part, saves=saves, **options)
        return (h, c), gates

    final, (states, gates) = loop(step, (h.astype(problem.dtype), c), part, mask, reverse, unroll)
    states, gates = ([a[:, : problem.batch] for a in part] for part in (states, gates))
    final = tuple(a[: problem.batch].astype(problem.wide) for a in final)
    hs, cs = states
    return (hs.astype(problem.wide), cs), final, tuple(gates)


def padded(arrays: Any, rows: int) -> Any:
    """Pads the batch of all arrays, their last axis but one, to a multiple of ``rows``."""

    def one(array: Array) -> Array:
        more = [(0, -array.shape[-2] % rows), (0, 0)]
        return jnp.pad(array, [(0, 0)] * (array.ndim - 2) + more)

    return jax.tree.map(one, arrays)
