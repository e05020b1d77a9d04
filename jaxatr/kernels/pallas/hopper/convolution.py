"""Convolution with its bias or folded batch norm, residual input and activation: implicit GEMM.

A 1x1 convolution is a plain product; a larger kernel of stride 1 sums one product per tap, each
over an aligned window of the image's rows (see :mod:`jaxatr.kernels.pallas.rows`).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from jaxatr.kernels.pallas import costs
from jaxatr.kernels.pallas.epilogue import Epilogue
from jaxatr.kernels.pallas.hopper.product import product
from jaxatr.kernels.pallas.hopper.tiles import PARAMS, fetch, grid, place, stated, store, swizzled
from jaxatr.kernels.pallas.rows import Rows
from jaxatr.typing import Array, Float

ROWS, DEPTH, SLOTS = 128, 64, 4  # size of a tile, and the most tiles loaded ahead
# Shared memory in bytes: the share of each of two blocks in a multiprocessor's 228 KiB, less 1 KiB
# that is reserved per block; and the alignment of a buffer.
_HALF, _ALIGNMENT = 228 * 1024 // 2 - 1024, 1024


def applies(rows: Rows, channels: int, features: int, dtype: str) -> bool:
    """Returns whether the sizes are multiples of a tile and the type suits tensor cores."""
    del rows
    return channels % DEPTH == 0 and features % 64 == 0 and dtype in ("bfloat16", "float16")


def convolution(
    x: Float[Array, "b h w c"],
    w: Float[Array, "kh kw c n"],
    rows: Rows,
    epilogue: Epilogue,
    scale: Float[Array, " n"] | None = None,
    shift: Float[Array, " n"] | None = None,
    residual: Float[Array, "b h2 w2 n"] | None = None,
    interpret: Any = None,
) -> Float[Array, "b h2 w2 n"]:
    """Computes the convolution with its epilogue.

    Args:
      x: images, bfloat16 or float16; ``c`` must be a multiple of 64.
      w: kernel of the same type; ``n`` must be a multiple of 64.
      rows: the geometry of the convolution.
      epilogue: the epilogue.
      scale: scale of each feature, if the epilogue has one.
      shift: shift of each feature, if the epilogue has one.
      residual: added before the activation, if the epilogue has one.
      interpret: parameters of Mosaic's interpreter, for tests.

    Raises:
      NotImplementedError: the channels, features or type are not supported.
    """
    channels, features = w.shape[2:]
    if not applies(rows, channels, features, x.dtype.name):
        raise NotImplementedError(
            f"got {channels} channels, {features} features, {x.dtype.name}; wanted multiples of "
            f"{DEPTH} and 64, and bfloat16 or float16"
        )
    columns = 128 if features % 128 == 0 else 64
    tiles = -(-rows.count // ROWS)
    operands = {"x": rows.copies(x, ROWS), "w": w.reshape(-1, features)}
    vectors = {"scale": scale, "shift": shift}
    operands |= {k: v.astype(jnp.float32) for k, v in vectors.items() if v is not None}
    if residual is not None:
        operands["residual"] = rows.spread(residual, ROWS)
    result = jax.ShapeDtypeStruct((tiles * ROWS, features), x.dtype)
    kernel = plgpu.kernel(
        partial(_kernel, rows=rows, epilogue=epilogue, columns=columns),
        out_type=result,
        **grid(tiles, features // columns),
        **stated(costs.convolution(tiles * ROWS, w, epilogue, (*operands.values(), result))),
        compiler_params=PARAMS,
        **({} if interpret is None else {"interpret": interpret}),
    )
    return rows.results(kernel(operands))


def _slots(columns: int, epilogue: Epilogue) -> int:
    """Returns the number of tiles to load ahead so that two blocks share a multiprocessor.

    A single block of one warp group leaves the tensor cores idle during its epilogue. If two blocks
    do not fit in any case, the number is the largest possible.
    """
    slot = 2 * (ROWS + columns) * DEPTH
    beside = 2 * ROWS * columns * epilogue.residual
    others = beside + _ALIGNMENT * (epilogue.scale + epilogue.shift + 1)  # 1: the barriers
    return next((n for n in (SLOTS, SLOTS - 1) if n * slot + others <= _HALF), SLOTS)


def _kernel(operands: dict[str, Any], out: Any, *, rows: Rows, epilogue: Epilogue, columns: int):
    x, w = operands["x"], operands["w"]
    tiles = x.shape[2] // DEPTH
    row, column = place(w.shape[1] // columns)
    top, left = row * ROWS, column * columns
    here = pl.ds(left, columns)

    def scoped(a, b, ready, vectors, beside, extras_ready):
        def load(step: Any, slot: Any) -> None:
            tap, k = jax.lax.div(step, tiles), jax.lax.rem(step, tiles)
            i, j = jax.lax.div(tap, rows.taps[1]), jax.lax.rem(tap, rows.taps[1])
            start = pl.multiple_of(top + i * rows.pitch, 8) if rows.taps != (1, 1) else top
            source = x.at[j, pl.ds(start, ROWS), pl.ds(k * DEPTH, DEPTH)]
            weights = w.at[pl.ds(step * DEPTH, DEPTH), here]
            fetch([(source, a.at[slot]), (weights, b.at[slot])], ready.at[slot])

        extras = [(operands[name].at[here], vectors[name]) for name in vectors]
        if beside is not None:
            extras.append((operands["residual"].at[pl.ds(top, ROWS), here], beside))
        fetch(extras, extras_ready)
        total = product(a, b, ready, rows.taps[0] * rows.taps[1] * tiles, load)
        if extras:
            plgpu.barrier_wait(extras_ready)
        spread = {
            name: jax.lax.broadcast_in_dim(vector[...], (ROWS, columns), (1,))
            for name, vector in vectors.items()
        }
        finished = epilogue(
            total,
            spread.get("scale"),
            spread.get("shift"),
            None if beside is None else beside[...],
        ).astype(out.dtype)
        # The slots are free now and have the tile's type and layout.
        copies = []
        for part in range(columns // DEPTH):
            a.at[part][...] = finished[:, part * DEPTH : (part + 1) * DEPTH]
            target = out.at[pl.ds(top, ROWS), pl.ds(left + part * DEPTH, DEPTH)]
            copies.append((a.at[part], target))
        store(copies)

    names = [name for name in ("scale", "shift") if name in operands]
    extras = len(names) + ("residual" in operands)
    slots = _slots(columns, epilogue)
    pl.run_scoped(
        scoped,
        a=swizzled((slots, ROWS, DEPTH), x.dtype),
        b=swizzled((slots, DEPTH, columns), w.dtype),
        ready=plgpu.Barrier(num_arrivals=2, num_barriers=slots),
        vectors={name: plgpu.SMEM((columns,), jnp.float32) for name in names},
        beside=swizzled((ROWS, columns), out.dtype) if "residual" in operands else None,
        extras_ready=plgpu.Barrier(num_arrivals=extras) if extras else None,
    )
