"""Convolution with its bias or folded batch norm, residual input and activation: implicit GEMM.

The rows of a tile are several images at several pixels. For one tap of the kernel, a single copy by
TMA fetches the images at one pixel, straight out of ``[b, h, w, c]``: only the coordinates of the
pixel depend on the tap, and TMA fills in zeros for a pixel beyond the image. So nothing is padded,
copied or transposed beforehand, and every stride costs the same. The data gradient reads the kernel
as it is and transposes it in the product.

The grid is persistent. One warp group of a block only copies; two multiply and apply the epilogue.
The tests interpret and compile the kernel; ``experiments/device`` checks and times it on a GPU.
"""

import dataclasses
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from jaxatr.kernels.pallas import costs
from jaxatr.kernels.pallas.epilogue import Epilogue
from jaxatr.kernels.pallas.hopper import persistent
from jaxatr.kernels.pallas.hopper.persistent import ALIGNMENT, GROUPS, Slots, each_tile
from jaxatr.kernels.pallas.hopper.tiles import fetch, swizzled
from jaxatr.kernels.pallas.hopper.units import (
    LINE,
    Units,
    applies,
    divided,
    missing,
    padded,
    refusal,
    viewed,
)
from jaxatr.kernels.pallas.windows import Windows
from jaxatr.typing import Array, Float


@dataclasses.dataclass(frozen=True)
class Tile:
    """The size of a tile.

    Attributes:
      rows: rows of each of the two warp groups, 64 or 128.
      columns: features, 64 or 128.
    """

    rows: int = 128
    columns: int = 128


_LEAST = 3  # slots: one for the product, one for the product before it, one to be copied into
TILES = tuple(Tile(rows, columns) for rows in (128, 64) for columns in (128, 64))


def tiles(
    windows: Windows, features: int, dtype: str = "bfloat16", epilogue: Epilogue | None = None
) -> tuple[Tile, ...]:
    """Returns the sizes of a tile that fit, with the default first.

    The default is the largest one that gives each multiprocessor a tile, or else the smallest.
    """
    given = epilogue or Epilogue(), jnp.dtype(dtype).itemsize
    plans = (_Plan(viewed(windows), features, tile, *given) for tile in TILES)
    fit = [plan for plan in plans if features % plan.tile.columns == 0 and plan.slots >= _LEAST]
    default = next((plan for plan in fit if plan.tiles >= persistent.BLOCKS), fit[-1])
    return (default.tile, *(plan.tile for plan in fit if plan != default))


def convolution(
    x: Float[Array, "b h w c"],
    w: Float[Array, "kh kw c n"] | Float[Array, "kh kw n c"],
    windows: Windows,
    epilogue: Epilogue,
    scale: Float[Array, " n"] | None = None,
    shift: Float[Array, " n"] | None = None,
    residual: Float[Array, "b h2 w2 n"] | None = None,
    tile: Tile | None = None,
    interpret: Any = None,
) -> Float[Array, "b h2 w2 n"]:
    """Computes the convolution, or its data gradient, with its epilogue.

    A batch that is not a multiple of 8 is padded, which copies the images and the result. The
    tensor cores multiply float32 in TF32, whose mantissa has 10 bits. They cannot transpose it, so
    XLA transposes the kernel of the convolution, but not that of its data gradient.

    Args:
      x: images, bfloat16, float16 or float32; ``c`` must be a multiple of 64.
      w: kernel of the same type, ``[kh, kw, n, c]`` for the data gradient; ``n`` must be a multiple
        of 64.
      windows: the geometry of the convolution.
      epilogue: the epilogue.
      scale: scale of each feature, if the epilogue has one.
      shift: shift of each feature, if the epilogue has one.
      residual: added before the activation, if the epilogue has one.
      tile: one of :func:`tiles`; the first by default.
      interpret: parameters of Mosaic's interpreter, for tests.

    Raises:
      NotImplementedError: the sizes or the type are not supported.
    """
    channels, features = w.shape[2:][:: -1 if windows.gradient else 1]
    if not applies(windows, channels, features, x.dtype.name):
        raise refusal(windows, channels, features, x.dtype.name)
    shape, more = (windows.batch, *windows.result, features), missing(windows)
    if x.dtype == jnp.float32 and not windows.gradient:
        w = jnp.swapaxes(w, 2, 3)
    operands = {"x": padded(x, windows), "w": w.reshape(-1, w.shape[3])}
    vectors = {"scale": scale, "shift": shift}
    operands |= {k: v.astype(jnp.float32) for k, v in vectors.items() if v is not None}
    if residual is not None:
        operands["residual"] = padded(residual, windows)
    windows = viewed(windows)
    result = jax.ShapeDtypeStruct((windows.batch, *windows.result, features), x.dtype)
    tile = tile or tiles(windows, features, x.dtype.name, epilogue)[0]
    plan = _Plan(windows, features, tile, epilogue, x.dtype.itemsize)
    pixels = windows.image if windows.gradient else windows.result  # that meet every tap
    arrays = (*operands.values(), result)
    cost = costs.convolution(windows.batch * math.prod(pixels), w, epilogue, arrays)
    kernel = partial(_kernel, plan=plan)
    y = persistent.launch(kernel, plan.tiles, result, cost, interpret)(operands)
    return (y[: windows.batch - more] if more else y).reshape(shape)


@dataclasses.dataclass(frozen=True)
class _Plan(Units):
    """How the work is divided; a tile has units of one phase."""

    features: int
    tile: Tile
    epilogue: Epilogue
    itemsize: int = 2

    @property
    def depth(self) -> int:
        """Channels of a product, and features of a buffer for results."""
        return LINE // self.itemsize

    @property
    def turned(self) -> bool:
        """Whether the kernel is ``[kh, kw, n, c]``."""
        return self.windows.gradient or self.itemsize == 4

    @property
    def lines(self) -> int:
        """Rows of a warp group in a tile."""
        return self.tile.rows

    @property
    def per_phase(self) -> int:
        """Tiles of rows per phase."""
        return -(-math.prod(self.windows.phase) * self.blocks // (GROUPS * self.units))

    @property
    def tiles(self) -> int:
        """All tiles."""
        phases = math.prod(self.windows.apart)
        return phases * self.per_phase * (self.features // self.tile.columns)

    @property
    def parts(self) -> int:
        """Buffers for the results of a warp group; enough for a whole tile if it has residuals."""
        return self.tile.columns // self.depth if self.epilogue.residual else 1

    @property
    def slots(self) -> int:
        """Tiles that are loaded ahead, as many as fit."""
        rows, columns = GROUPS * self.tile.rows, self.tile.columns
        results = self.parts * rows * LINE
        others = ALIGNMENT * (self.epilogue.scale + self.epilogue.shift + 1)  # 1: the barriers
        return persistent.slots_that_fit(LINE * (rows + columns), results + others)

    def place(self, index: Any) -> tuple[Any, Any, Any]:
        """Returns the phase, the first unit and the first feature of a tile."""
        rest, column = divided(index, self.features // self.tile.columns)
        phase, rest = divided(rest, self.per_phase)
        phase = divided(phase, self.windows.apart[1])
        return phase, rest * GROUPS * self.units, column * self.tile.columns


def _kernel(operands: dict[str, Any], out: Any, *, plan: _Plan) -> None:
    names = [name for name in ("scale", "shift") if name in operands]
    extras = len(names) + plan.parts * plan.units * plan.epilogue.residual
    rows, columns = GROUPS * plan.tile.rows, plan.tile.columns
    weights = (columns, plan.depth) if plan.turned else (plan.depth, columns)

    def scoped(a, b, full, empty, results, vectors, extras_ready):
        slots = Slots(plan.slots, full, empty)
        given = operands, out, plan
        persistent.specialised(
            lambda: _copy(operands, plan, a, b, slots),
            lambda group: _multiply(*given, group, a, b, slots, results, vectors, extras_ready),
        )

    pl.run_scoped(
        scoped,
        a=swizzled((plan.slots, rows, plan.depth), out.dtype),
        b=swizzled((plan.slots, *weights), out.dtype),
        full=plgpu.Barrier(num_arrivals=GROUPS * plan.units + 1, num_barriers=plan.slots),
        empty=plgpu.Barrier(num_arrivals=GROUPS, num_barriers=plan.slots),
        results=swizzled((GROUPS, plan.parts, plan.tile.rows, plan.depth), out.dtype),
        vectors={name: plgpu.SMEM((GROUPS, columns), jnp.float32) for name in names},
        extras_ready=plgpu.Barrier(num_arrivals=extras, num_barriers=GROUPS) if extras else None,
        collective_axes="group",
    )


def _copy(operands: Any, plan: _Plan, a: Any, b: Any, slots: Slots) -> None:
    """Copies all tiles of images and of the kernel into the slots, as these become empty."""
    x, w = operands["x"], operands["w"]
    windows, depth = plan.windows, plan.depth
    steps = x.shape[3] // depth  # of a tap

    def tile(index: Any, count: Any) -> Any:
        phase, first, feature = plan.place(index)
        first_taps, taps = windows.taps_of(phase)

        def load(s: Any, slot: Any) -> None:
            full = slots.full.at[slot]
            tap, k = divided(s, steps)
            i, j = jax.lax.div(tap, taps[1]), jax.lax.rem(tap, taps[1])

            def unit(place: Any, rows: Any) -> None:
                image, pixel, _ = plan.unit(phase, first + place)
                row, column = windows.source(pixel, first_taps, (i, j))
                source = x.at[pl.ds(image, plan.images), row, column, pl.ds(k * depth, depth)]
                plgpu.copy_gmem_to_smem(source, a.at[slot, rows], full)

            plan.each_unit(GROUPS * plan.units, unit)
            number = windows.number(first_taps, (i, j))
            if plan.turned:
                here = pl.ds(number * plan.features + feature, plan.tile.columns)
                weights = w.at[here, pl.ds(k * depth, depth)]
            else:
                here = pl.ds((number * steps + k) * depth, depth)
                weights = w.at[here, pl.ds(feature, plan.tile.columns)]
            plgpu.copy_gmem_to_smem(weights, b.at[slot], full)

        return slots.fill(taps[0] * taps[1] * steps, count, load)

    slots.drain(each_tile(plan.tiles, tile))


def _multiply(
    operands: Any,
    out: Any,
    plan: _Plan,
    group: Any,
    a: Any,
    b: Any,
    slots: Slots,
    results: Any,
    vectors: Any,
    extras_ready: Any,
) -> None:
    """Multiplies the rows of one warp group in all tiles, and stores the results."""
    rows, columns = plan.tile.rows, plan.tile.columns
    depth, parts = plan.depth, columns // plan.depth
    steps = operands["x"].shape[3] // depth  # of a tap

    def each_unit(phase: Any, first: Any, part: int, feature: Any, array: Any, work: Any) -> None:
        """Calls ``work(part of the array, rows of a buffer, whether to store)`` for each unit."""

        def unit(number: Any, rows: Any) -> None:
            image, (y, x), within = plan.unit(phase, first + group * plan.units + number)
            here = pl.ds(feature + part * depth, depth)
            work(array.at[pl.ds(image, plan.images), y, x, here], rows, within)

        plan.each_unit(plan.units, unit)

    def tile(index: Any, count: Any) -> Any:
        phase, first, feature = plan.place(index)
        _, taps = plan.windows.taps_of(phase)
        if extras_ready is not None:
            plgpu.wait_smem_to_gmem(0, wait_read_only=True)
            ready = extras_ready.at[group]
            here = pl.ds(feature, columns)
            fetch([(operands[name].at[here], vectors[name].at[group]) for name in vectors], ready)
            if plan.epilogue.residual:
                for part in range(parts):

                    def add(source: Any, at: Any, _: Any, part: int = part) -> None:
                        plgpu.copy_gmem_to_smem(source, results.at[group, part, at], ready)

                    each_unit(phase, first, part, feature, operands["residual"], add)

        def scoped(total: Any) -> Any:
            def product(slot: Any) -> None:
                weights = b.at[slot]
                if plan.turned:
                    weights = weights.transpose((1, 0))
                plgpu.wgmma(total, a.at[slot, pl.ds(group * rows, rows)], weights)

            after = slots.multiply(taps[0] * taps[1] * steps, count, product)
            if extras_ready is not None:
                plgpu.barrier_wait(extras_ready.at[group])
            sums = total[...]
            for part in range(parts):
                here = slice(part * depth, (part + 1) * depth)
                buffer = results.at[group, part % plan.parts]
                spread = {
                    name: jax.lax.broadcast_in_dim(vector[group, here], (rows, depth), (1,))
                    for name, vector in vectors.items()
                }
                finished = plan.epilogue(
                    sums[:, here],
                    spread.get("scale"),
                    spread.get("shift"),
                    buffer[...] if plan.epilogue.residual else None,
                )
                if not plan.epilogue.residual:  # an earlier store may still read the buffer
                    plgpu.wait_smem_to_gmem(0, wait_read_only=True)
                buffer[...] = finished.astype(out.dtype)
                plgpu.commit_smem()

                def store(target: Any, at: Any, within: Any, buffer: Any = buffer) -> None:
                    @pl.when(within)
                    def _() -> None:
                        plgpu.copy_smem_to_gmem(buffer.at[at], target, commit_group=False)

                each_unit(phase, first, part, feature, out, store)
                plgpu.commit_smem_to_gmem_group()
            return after

        accumulator = plgpu.WGMMAAccumulatorRef((rows, columns), jnp.float32)
        return pl.run_scoped(scoped, total=accumulator)

    each_tile(plan.tiles, tile)
    plgpu.wait_smem_to_gmem(0)
