"""The steps of an LSTM for inference: product, gates and update of the cell in one kernel.

Each block of the grid computes all four gates of its units, side by side in one accumulator.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from jaxatr.kernels.pallas import costs
from jaxatr.kernels.pallas.gates import GATES, update
from jaxatr.kernels.pallas.hopper.product import product
from jaxatr.kernels.pallas.hopper.tiles import PARAMS, fetch, grid, place, store, swizzled
from jaxatr.typing import Array, Float

ROWS, UNITS, DEPTH, SLOTS = 64, 32, 64, 3  # size of a tile, and the number loaded ahead


def applies(hidden: int, dtype: str) -> bool:
    """Returns whether the sizes are multiples of a tile and the type suits tensor cores."""
    return hidden % DEPTH == 0 and dtype in ("bfloat16", "float16")


def rows(dtype: str) -> int:
    """Returns the number that the batch must be a multiple of."""
    del dtype
    return ROWS


def layer(
    h: Float[Array, "b h"],
    c: Float[Array, "b h"],
    r: Float[Array, "h columns"],
    parts: Float[Array, "t b columns"],
    reverse: bool = False,
    unroll: int = 1,
    interpret: Any = None,
) -> tuple[Float[Array, "t b h"], Float[Array, "b h"]]:
    """Runs all steps in place, without saving the gates.

    Each step launches one kernel besides the loop counter's. Four more would be needed to slice the
    step's part, to store its ``h`` and to copy both states for the next step. Instead, each step
    reads its part and the previous state in place, writes ``h`` to its final position and
    overwrites ``c``.

    Args:
      h: the initial state, bfloat16 or float16; ``b`` and ``h`` must be multiples of 64.
      c: the cell's initial state, float32.
      r: the recurrent matrix, of the type of ``h``, columns :func:`~..gates.grouped` by ``UNITS``.
      parts: the input's part of the gates for all steps, float32, with columns grouped in the same
        way.
      reverse: whether to run from the last step to the first.
      unroll: steps per iteration of the loop.
      interpret: parameters of Mosaic's interpreter, for tests.

    Returns:
      ``h`` after each step, and ``c`` after the last step that was run.

    Raises:
      NotImplementedError: the sizes or the type are not supported.
    """
    (batch, hidden), steps = h.shape, parts.shape[0]
    if batch % ROWS or not applies(hidden, h.dtype.name):
        raise NotImplementedError(
            f"got a batch of {batch}, {hidden} units, {h.dtype.name}; wanted multiples of {ROWS} "
            f"and {DEPTH}, and bfloat16 or float16"
        )
    kernel: Any = pl.kernel(
        partial(_step, reverse=reverse),
        mesh=plgpu.Mesh(**grid(batch // ROWS, hidden // UNITS)),
        cost_estimate=costs.lstm(h, r, jax.ShapeDtypeStruct(parts.shape[1:], parts.dtype), 0),
        compiler_params=PARAMS,
        **({} if interpret is None else {"interpret": interpret}),
    )
    room = jnp.zeros((steps, *h.shape), h.dtype)
    hs = jnp.concatenate([room, h[None]] if reverse else [h[None], room])

    def one(count: Any, state: tuple[Array, Array]) -> tuple[Array, Array]:
        # run_state hides the references, so that differentiation sees arrays only.
        return pl.run_state(lambda refs: kernel(jnp.reshape(count, 1), r, parts, *refs))(state)

    hs, c = jax.lax.fori_loop(0, steps, one, (hs, c), unroll=unroll)
    return hs[:-1] if reverse else hs[1:], c


def _step(count: Any, r: Any, parts: Any, hs: Any, c: Any, *, reverse: bool) -> None:
    t = parts.shape[0] - 1 - count[0] if reverse else count[0]
    before, after = (t + 1, t) if reverse else (t, t + 1)
    h, part, next_h = hs.at[before], parts.at[t], hs.at[after]
    row, block = place(r.shape[0] // UNITS)
    batch = pl.ds(row * ROWS, ROWS)
    units = pl.ds(block * UNITS, UNITS)
    columns = pl.ds(block * GATES * UNITS, GATES * UNITS)

    def scoped(a, b, ready, beside, cell, finished, beside_ready):
        def load(step: Any, slot: Any) -> None:
            depth = pl.ds(step * DEPTH, DEPTH)
            copies = [(h.at[batch, depth], a.at[slot]), (r.at[depth, columns], b.at[slot])]
            fetch(copies, ready.at[slot])

        fetch([(part.at[batch, columns], beside), (c.at[batch, units], cell)], beside_ready)
        total = product(a, b, ready, r.shape[0] // DEPTH, load)
        plgpu.barrier_wait(beside_ready)
        total = total + beside[...]
        sums = [total[:, gate * UNITS : (gate + 1) * UNITS] for gate in range(GATES)]
        *states, _ = update(sums, cell[...])
        for tile, value in zip(finished, states, strict=True):
            tile[...] = value.astype(tile.dtype)
        targets = [array.at[batch, units] for array in (next_h, c)]
        store(list(zip(finished, targets, strict=True)))

    tile = partial(swizzled, (ROWS, UNITS))
    pl.run_scoped(
        scoped,
        a=swizzled((SLOTS, ROWS, DEPTH), h.dtype),
        b=swizzled((SLOTS, DEPTH, GATES * UNITS), r.dtype),
        ready=plgpu.Barrier(num_arrivals=2, num_barriers=SLOTS),
        beside=swizzled((ROWS, GATES * UNITS), jnp.float32),
        cell=tile(jnp.float32),
        finished=[tile(hs.dtype), tile(jnp.float32)],
        beside_ready=plgpu.Barrier(num_arrivals=2),
    )
