"""Convolution with its bias or folded batch norm, residual input and activation: implicit GEMM.

The rows of a tile are several images at several pixels. For one tap of the kernel, TMA copies the
images at one pixel at once, straight out of ``[b, h, w, c]``: only the coordinates of the pixel
depend on the tap, and TMA fills in zeros for a pixel beyond the image. So nothing is padded, copied
or transposed beforehand, and every stride costs the same. The data gradient reads the kernel as it
is and transposes it in the product.

The grid is persistent. One warp group of a block only copies; two multiply and apply the epilogue.
The tests interpret and compile the kernel; no run on a GPU is recorded.
"""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from jaxatr.kernels.pallas import costs
from jaxatr.kernels.pallas.epilogue import Epilogue
from jaxatr.kernels.pallas.hopper.tiles import PARAMS, fetch, stated, swizzled
from jaxatr.kernels.pallas.windows import Place, Windows
from jaxatr.typing import Array, Float

DEPTH = 64  # channels per product: 128 bytes, the width of the swizzled layout
GROUPS = 2  # warp groups that multiply; one more copies
UNIT = 8  # images are copied in multiples of the tensor cores' 8 rows
BLOCKS = 132  # multiprocessors of an H100 or H200
_SHARED, _ALIGNMENT = 227 * 1024, 1024  # bytes of shared memory of a block, and of its buffers
_UNROLLED = 4  # the most units that are copied without a loop over units
_SLOTS = 6  # the most tiles loaded ahead
_WASTE = 1.1  # the most rows of a tile, relative to those that hold an image
_REGISTERS = {"copies": 56, "multiplies": 224}  # of a thread; 168 on average
_LARGEST = 2**31 - 1  # the largest coordinate of TMA


@dataclasses.dataclass(frozen=True)
class Tile:
    """The size of a tile.

    Attributes:
      rows: rows of each of the two warp groups, 64 or 128.
      columns: features, 64 or 128.
    """

    rows: int = 128
    columns: int = 128


TILES = tuple(Tile(rows, columns) for rows in (128, 64) for columns in (128, 64))


def applies(windows: Windows, channels: int, features: int, dtype: str) -> bool:
    """Returns whether the kernel supports the sizes and the type."""
    batch = windows.batch
    if dtype not in ("bfloat16", "float16") or channels % DEPTH or features % 64:
        return False
    if not isinstance(batch, int):  # a symbolic dimension of jax.export
        return False
    if not windows.pointwise and (batch < UNIT or windows.pixels == 1):
        return False
    counts = batch * windows.pixels, batch * math.prod(windows.result)
    return max(*counts, math.prod(windows.taps) * max(channels, features)) <= _LARGEST // 2


def missing(windows: Windows) -> int:
    """Returns the number of images by which the batch is padded; each pixel of 1x1 is an image."""
    images = windows.batch * windows.pixels if windows.pointwise else windows.batch
    return -images % UNIT


def tiles(windows: Windows, features: int) -> tuple[Tile, ...]:
    """Returns the sizes of a tile that fit, with the default first.

    The default is the largest one that gives each multiprocessor a tile, or else the smallest.
    """
    windows = _viewed(windows)
    fit = [tile for tile in TILES if features % tile.columns == 0]
    busy = (tile for tile in fit if _Plan(windows, features, tile, Epilogue()).tiles >= BLOCKS)
    default = next(busy, fit[-1])
    return (default, *(tile for tile in fit if tile != default))


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

    A batch that is not a multiple of 8 is padded, which copies the images and the result.

    Args:
      x: images, bfloat16 or float16; ``c`` must be a multiple of 64.
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
        raise NotImplementedError(
            f"got batch {windows.batch}, {channels} channels, {features} features, {x.dtype.name}; "
            f"wanted at least {UNIT} images (any number for 1x1 kernels of stride 1), multiples of "
            f"{DEPTH} and 64, and bfloat16 or float16"
        )
    shape, more = (windows.batch, *windows.result, features), missing(windows)
    if windows.pointwise:  # every pixel is an image
        x = x.reshape(-1, 1, 1, channels)
        residual = None if residual is None else residual.reshape(-1, 1, 1, features)
    if more:
        edge = ((0, more), (0, 0), (0, 0), (0, 0))
        x = jnp.pad(x, edge)
        residual = None if residual is None else jnp.pad(residual, edge)
    operands = {"x": x, "w": w.reshape(-1, w.shape[3])}
    vectors = {"scale": scale, "shift": shift}
    operands |= {k: v.astype(jnp.float32) for k, v in vectors.items() if v is not None}
    if residual is not None:
        operands["residual"] = residual
    windows = _viewed(windows)
    result = jax.ShapeDtypeStruct((windows.batch, *windows.result, features), x.dtype)
    plan = _Plan(windows, features, tile or tiles(windows, features)[0], epilogue)
    pixels = windows.image if windows.gradient else windows.result  # that meet every tap
    arrays = (*operands.values(), result)
    cost = costs.convolution(windows.batch * math.prod(pixels), w, epilogue, arrays)
    kernel = plgpu.kernel(
        partial(_kernel, plan=plan),
        out_type=result,
        grid=(min(BLOCKS, plan.tiles),),
        grid_names=("block",),
        num_threads=GROUPS + 1,
        thread_name="group",
        **stated(cost),
        compiler_params=PARAMS,
        **({} if interpret is None else {"interpret": interpret}),
    )
    y = kernel(operands)
    return (y[: windows.batch - more] if more else y).reshape(shape)


def _viewed(windows: Windows) -> Windows:
    """Returns the windows that the kernel computes: padded, with pixels as images if pointwise."""
    more = missing(windows)
    if windows.pointwise:
        images = windows.batch * windows.pixels
        windows = dataclasses.replace(windows, batch=images, image=(1, 1), result=(1, 1))
    return dataclasses.replace(windows, batch=windows.batch + more)


@dataclasses.dataclass(frozen=True)
class _Plan:
    """How the work is divided.

    A tile's rows are units: some images at one pixel. Units are numbered by pixel and then by
    image. With the data gradient of a stride, the pixels that meet the same taps are a phase, and a
    tile has units of one phase.
    """

    windows: Windows
    features: int
    tile: Tile
    epilogue: Epilogue

    @property
    def images(self) -> int:
        """Images of a unit: the most with which few rows of a tile are empty."""
        batch = self.windows.batch
        sizes = [UNIT << n for n in range(5) if UNIT << n <= self.tile.rows]
        fit = (size for size in reversed(sizes) if -(-batch // size) * size <= _WASTE * batch)
        return next(fit, UNIT)

    @property
    def units(self) -> int:
        """Units of each warp group in a tile."""
        return self.tile.rows // self.images

    @property
    def blocks(self) -> int:
        """Units per pixel."""
        return -(-self.windows.batch // self.images)

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
        """Buffers of 64 columns for the results of a warp group; all if residuals are loaded."""
        return self.tile.columns // DEPTH if self.epilogue.residual else 1

    @property
    def slots(self) -> int:
        """Tiles that are loaded ahead, as many as fit."""
        rows, columns = GROUPS * self.tile.rows, self.tile.columns
        results = 2 * self.parts * rows * DEPTH
        others = _ALIGNMENT * (self.epilogue.scale + self.epilogue.shift + 1)  # 1: the barriers
        return min(_SLOTS, (_SHARED - results - others) // (2 * DEPTH * (rows + columns)))

    def unit(self, phase: Place, index: Any) -> tuple[Any, Place, Any]:
        """Returns the first image, the pixel and whether a unit of a phase is part of the result.

        Args:
          phase: the row and the column of the phase.
          index: number of the unit in its phase.
        """
        pixel, block = _divided(index, self.blocks)
        row, column = _divided(pixel, self.windows.phase[1])
        y = row * self.windows.apart[0] + phase[0]
        x = column * self.windows.apart[1] + phase[1]
        within = (y < self.windows.result[0]) & (x < self.windows.result[1])
        return block * self.images, (y, x), within

    def each_unit(self, units: int, work: Callable[[Any, Any], None]) -> None:
        """Calls ``work(number, rows of a buffer)`` for each of some units; a loop if many."""

        def one(number: Any, _: None) -> None:
            work(number, pl.ds(pl.multiple_of(number * self.images, UNIT), self.images))

        if units > _UNROLLED:  # otherwise their coordinates would not fit in registers
            jax.lax.fori_loop(0, units, one, None)
            return
        for number in range(units):
            work(number, pl.ds(number * self.images, self.images))


def _divided(a: Any, b: int) -> tuple[Any, Any]:
    """Returns the quotient and the remainder."""
    return jax.lax.div(a, jnp.int32(b)), jax.lax.rem(a, jnp.int32(b))


def _kernel(operands: dict[str, Any], out: Any, *, plan: _Plan) -> None:
    group = jax.lax.axis_index("group")
    names = [name for name in ("scale", "shift") if name in operands]
    extras = len(names) + plan.parts * plan.units * plan.epilogue.residual
    rows, columns = GROUPS * plan.tile.rows, plan.tile.columns
    weights = (columns, DEPTH) if plan.windows.gradient else (DEPTH, columns)

    def scoped(a, b, full, empty, results, vectors, extras_ready):
        @pl.when(group == GROUPS)
        def _() -> None:
            plgpu.set_max_registers(_REGISTERS["copies"], action="decrease")
            _copy(operands, plan, a, b, full, empty)

        @pl.when(group < GROUPS)
        def _() -> None:
            plgpu.set_max_registers(_REGISTERS["multiplies"], action="increase")
            _multiply(operands, out, plan, group, a, b, full, empty, results, vectors, extras_ready)

    pl.run_scoped(
        scoped,
        a=swizzled((plan.slots, rows, DEPTH), out.dtype),
        b=swizzled((plan.slots, *weights), out.dtype),
        full=plgpu.Barrier(num_arrivals=GROUPS * plan.units + 1, num_barriers=plan.slots),
        empty=plgpu.Barrier(num_arrivals=GROUPS, num_barriers=plan.slots),
        results=swizzled((GROUPS, plan.parts, plan.tile.rows, DEPTH), out.dtype),
        vectors={name: plgpu.SMEM((GROUPS, columns), jnp.float32) for name in names},
        extras_ready=plgpu.Barrier(num_arrivals=extras, num_barriers=GROUPS) if extras else None,
        collective_axes="group",
    )


def _each_tile(plan: _Plan, work: Any) -> Any:
    """Calls ``work(phase, first unit, first feature, count)`` for each tile of this block.

    ``count`` is the number of products before the tile; the results are the number after it.
    """
    blocks = min(BLOCKS, plan.tiles)

    def one(turn: Any, count: Any) -> Any:
        index = jax.lax.axis_index("block") + turn * blocks
        rest, column = _divided(index, plan.features // plan.tile.columns)
        phase, rest = _divided(rest, plan.per_phase)
        phase = _divided(phase, plan.windows.apart[1])
        return work(phase, rest * GROUPS * plan.units, column * plan.tile.columns, count)

    turns = jax.lax.div(plan.tiles - 1 - jax.lax.axis_index("block") + blocks, jnp.int32(blocks))
    return jax.lax.fori_loop(0, turns, one, jnp.int32(0))


def _copy(operands: Any, plan: _Plan, a: Any, b: Any, full: Any, empty: Any) -> None:
    """Copies all tiles of images and of the kernel into the slots, as these become empty."""
    x, w = operands["x"], operands["w"]
    windows, depth = plan.windows, x.shape[3] // DEPTH

    def tile(phase: Any, first: Any, feature: Any, count: Any) -> Any:
        first_taps, taps = windows.taps_of(phase)

        def step(s: Any, count: Any) -> Any:
            slot = jax.lax.rem(count, jnp.int32(plan.slots))

            @pl.when(count >= plan.slots)
            def _() -> None:
                plgpu.barrier_wait(empty.at[slot])

            tap, k = _divided(s, depth)
            i, j = jax.lax.div(tap, taps[1]), jax.lax.rem(tap, taps[1])

            def unit(place: Any, rows: Any) -> None:
                image, pixel, _ = plan.unit(phase, first + place)
                row, column = windows.source(pixel, first_taps, (i, j))
                source = x.at[pl.ds(image, plan.images), row, column, pl.ds(k * DEPTH, DEPTH)]
                plgpu.copy_gmem_to_smem(source, a.at[slot, rows], full.at[slot])

            plan.each_unit(GROUPS * plan.units, unit)
            number = windows.number(first_taps, (i, j))
            if windows.gradient:
                here = pl.ds(number * plan.features + feature, plan.tile.columns)
                weights = w.at[here, pl.ds(k * DEPTH, DEPTH)]
            else:
                here = pl.ds((number * depth + k) * DEPTH, DEPTH)
                weights = w.at[here, pl.ds(feature, plan.tile.columns)]
            plgpu.copy_gmem_to_smem(weights, b.at[slot], full.at[slot])
            return count + 1

        return jax.lax.fori_loop(0, taps[0] * taps[1] * depth, step, count)

    count = _each_tile(plan, tile)
    for slot in range(plan.slots):  # no block ends before its last products are done

        @pl.when(count > slot)
        def _(slot=slot) -> None:
            plgpu.barrier_wait(empty.at[slot])


def _multiply(
    operands: Any,
    out: Any,
    plan: _Plan,
    group: Any,
    a: Any,
    b: Any,
    full: Any,
    empty: Any,
    results: Any,
    vectors: Any,
    extras_ready: Any,
) -> None:
    """Multiplies the rows of one warp group in all tiles, and stores the results."""
    rows, columns = plan.tile.rows, plan.tile.columns
    depth, slots = operands["x"].shape[3] // DEPTH, plan.slots
    parts = columns // DEPTH

    def each_unit(phase: Any, first: Any, part: int, feature: Any, array: Any, work: Any) -> None:
        """Calls ``work(part of the array, rows of a buffer, whether to store)`` for each unit."""

        def unit(number: Any, rows: Any) -> None:
            image, (y, x), within = plan.unit(phase, first + group * plan.units + number)
            here = pl.ds(feature + part * DEPTH, DEPTH)
            work(array.at[pl.ds(image, plan.images), y, x, here], rows, within)

        plan.each_unit(plan.units, unit)

    def tile(phase: Any, first: Any, feature: Any, count: Any) -> Any:
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
            def step(s: Any, count: Any) -> Any:
                slot = jax.lax.rem(count, jnp.int32(slots))
                plgpu.barrier_wait(full.at[slot])
                weights = b.at[slot]
                if plan.windows.gradient:
                    weights = weights.transpose((1, 0))
                plgpu.wgmma(total, a.at[slot, pl.ds(group * rows, rows)], weights)
                plgpu.wgmma_wait(1)

                @pl.when(s > 0)  # the product before is done
                def _() -> None:
                    plgpu.barrier_arrive(empty.at[jax.lax.rem(count - 1, jnp.int32(slots))])

                return count + 1

            steps = taps[0] * taps[1] * depth
            count_after = jax.lax.fori_loop(0, steps, step, count)
            plgpu.wgmma_wait(0)

            @pl.when(steps > 0)
            def _() -> None:
                plgpu.barrier_arrive(empty.at[jax.lax.rem(count_after - 1, jnp.int32(slots))])

            if extras_ready is not None:
                plgpu.barrier_wait(extras_ready.at[group])
            sums = total[...]
            for part in range(parts):
                here = slice(part * DEPTH, (part + 1) * DEPTH)
                buffer = results.at[group, part % plan.parts]
                spread = {
                    name: jax.lax.broadcast_in_dim(vector[group, here], (rows, DEPTH), (1,))
                    for name, vector in vectors.items()
                }
                finished = plan.epilogue(
                    sums[:, here],
                    spread.get("scale"),
                    spread.get("shift"),
                    buffer[...] if plan.epilogue.residual else None,
                )
                if not plan.epilogue.residual:  # the buffer may still be stored from
                    plgpu.wait_smem_to_gmem(0, wait_read_only=True)
                buffer[...] = finished.astype(out.dtype)
                plgpu.commit_smem()

                def store(target: Any, at: Any, within: Any, buffer: Any = buffer) -> None:
                    @pl.when(within)
                    def _() -> None:
                        plgpu.copy_smem_to_gmem(buffer.at[at], target, commit_group=False)

                each_unit(phase, first, part, feature, out, store)
                plgpu.commit_smem_to_gmem_group()
            return count_after

        accumulator = plgpu.WGMMAAccumulatorRef((rows, columns), jnp.float32)
        return pl.run_scoped(scoped, total=accumulator)

    _each_tile(plan, tile)
    plgpu.wait_smem_to_gmem(0)
