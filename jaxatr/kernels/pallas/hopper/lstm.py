"""One step of an LSTM: recurrent product, gates and update of the cell in one kernel.

Each block of the grid holds all four gates of its units, side by side in one accumulator.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from jaxatr.kernels.pallas.gates import GATES, close
from jaxatr.kernels.pallas.hopper.product import product
from jaxatr.kernels.pallas.hopper.tiles import PARAMS, fetch, store, swizzled
from jaxatr.typing import Array, Float

ROWS, UNITS, DEPTH, SLOTS = 64, 32, 64, 3  # of a tile; how many tiles are loaded ahead


def applies(hidden: int, dtype: str) -> bool:
    """Says whether whole tiles fit, in a type that tensor cores take as it is stored."""
    return hidden % DEPTH == 0 and dtype in ("bfloat16", "float16")


def rows(dtype: str) -> int:
    """Returns the divisor that the batch must have."""
    del dtype
    return ROWS


def step(
    h: Float[Array, "b h"],
    c: Float[Array, "b h"],
    r: Float[Array, "h columns"],
    part: Float[Array, "b columns"],
    interpret: Any = None,
) -> tuple[Float[Array, "b h"], Float[Array, "b h"], tuple[Array, ...]]:
    """Makes one step.

    Args:
      h: the state, bfloat16 or float16; ``b`` and ``h`` must be multiples of 64.
      c: the cell's state, float32.
      r: the recurrent matrix, of the type of ``h``, columns :func:`~..gates.grouped` by ``UNITS``.
      part: the input's part of the gates, float32, grouped likewise.
      interpret: parameters of Mosaic's interpreter, for tests.

    Returns:
      The next ``h`` and ``c``, and the gates ``(i, f, o, c~, tanh(c))`` in float32.

    Raises:
      NotImplementedError: sizes or type are not as above.
    """
    batch, hidden = h.shape
    if batch % ROWS or not applies(hidden, h.dtype.name):
        raise NotImplementedError(
            f"got a batch of {batch}, {hidden} units, {h.dtype.name}; wanted multiples of {ROWS} "
            f"and {DEPTH}, and bfloat16 or float16"
        )
    single = jax.ShapeDtypeStruct((batch, hidden), jnp.float32)
    kernel = plgpu.kernel(
        _kernel,
        out_type=[jax.ShapeDtypeStruct(h.shape, h.dtype), single, *[single] * (GATES + 1)],
        grid=(batch // ROWS, hidden // UNITS),
        grid_names=("m", "n"),
        compiler_params=PARAMS,
        **({} if interpret is None else {"interpret": interpret}),
    )
    h, c, *gates = kernel(h, c, r, part)
    return h, c, tuple(gates)


def _kernel(h: Any, c: Any, r: Any, part: Any, *outputs: Any) -> None:
    batch = pl.ds(jax.lax.axis_index("m") * ROWS, ROWS)
    units = pl.ds(jax.lax.axis_index("n") * UNITS, UNITS)
    columns = pl.ds(jax.lax.axis_index("n") * GATES * UNITS, GATES * UNITS)

    def scoped(a, b, ready, beside, cell, finished, beside_ready):
        def load(step: Any, slot: Any) -> None:
            depth = pl.ds(step * DEPTH, DEPTH)
            copies = [(h.at[batch, depth], a.at[slot]), (r.at[depth, columns], b.at[slot])]
            fetch(copies, ready.at[slot])

        fetch([(part.at[batch, columns], beside), (c.at[batch, units], cell)], beside_ready)
        total = product(a, b, ready, h.shape[1] // DEPTH, load)
        plgpu.barrier_wait(beside_ready)
        total = total + beside[...]
        sums = [total[:, gate * UNITS : (gate + 1) * UNITS] for gate in range(GATES)]
        new_h, new_c, gates = close(sums, cell[...])
        for tile, value in zip(finished, (new_h, new_c, *gates), strict=True):
            tile[...] = value.astype(tile.dtype)
        targets = [output.at[batch, units] for output in outputs]
        store(list(zip(finished, targets, strict=True)))

    tile = partial(swizzled, (ROWS, UNITS))
    pl.run_scoped(
        scoped,
        a=swizzled((SLOTS, ROWS, DEPTH), h.dtype),
        b=swizzled((SLOTS, DEPTH, GATES * UNITS), r.dtype),
        ready=plgpu.Barrier(num_arrivals=2, num_barriers=SLOTS),
        beside=swizzled((ROWS, GATES * UNITS), jnp.float32),
        cell=tile(jnp.float32),
        finished=[tile(output.dtype) for output in outputs],
        beside_ready=plgpu.Barrier(num_arrivals=2),
    )
