"""Weight gradient of a convolution: a sum over pixels of products, on the tensor cores.

The result is a matrix ``[kh * kw * c, n]``. Its rows are bands of 64 channels at one tap, and a
tile has some of them, which share the gradient of the results. A product sums over some images at
some pixels: its operands are copied straight out of ``[b, h, w, c]``, as in the convolution, and
the tensor cores read the images transposed. So nothing is padded, copied or transposed beforehand.

A kernel has fewer tiles than a GPU has multiprocessors, so the sum is divided into pieces. Each is
written in float32, and XLA adds them up, always in the same order: repeated runs agree to the bit.
The tests interpret and compile the kernel; ``experiments/device`` checks and times it on a GPU.
"""

import dataclasses
import itertools
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
from jaxatr.kernels.pallas.hopper.tiles import swizzled
from jaxatr.kernels.pallas.hopper.units import (
    LARGEST,
    LINE,
    UNIT,
    Units,
    divided,
    padded,
    refusal,
    viewed,
)
from jaxatr.kernels.pallas.hopper.units import applies as convolution_applies
from jaxatr.kernels.pallas.windows import Windows
from jaxatr.typing import Array, Float

DEPTH = 64  # images, each at one pixel, of a product; and channels of a band
_SIZES = tuple(itertools.product((128, 64), (128, 64)))  # rows and columns
_EMPTY = 1.25  # the most bands of all tiles, relative to those of the result, for the default
_BUFFERS = 2  # the most buffers for the results of a warp group
_ORIGIN = (0, 0)  # the only phase, and the first tap


@dataclasses.dataclass(frozen=True)
class Tile:
    """The size of a tile, and how often the sum over pixels is divided.

    Attributes:
      rows: channels of each of the two warp groups, 64 or 128.
      columns: features, 64 or 128.
      pieces: parts of the sum, which are computed separately.
    """

    rows: int
    columns: int
    pieces: int


def applies(windows: Windows, channels: int, features: int, dtype: str) -> bool:
    """Returns whether the kernel supports the sizes and the type."""
    if dtype == "float32":  # the tensor cores do not transpose it
        return False
    if windows.gradient or not convolution_applies(windows, channels, features, dtype):
        return False
    if windows.pointwise and windows.batch * windows.pixels <= UNIT:
        return False  # nothing is outside: TMA drops the axes of a single pixel and of 8 images
    return 2 * persistent.BLOCKS * math.prod(windows.taps) * channels <= LARGEST


def tiles(windows: Windows, channels: int, features: int) -> tuple[Tile, ...]:
    """Returns the sizes of a tile that fit, with the default first.

    The default is the largest size with few empty rows, and the most pieces with which each
    multiprocessor has at most one tile. The others have half or twice as many pieces, too.
    """
    windows, found = viewed(windows), {}
    for rows, columns in _SIZES:
        if features % columns:
            continue
        whole = _Plan(windows, channels, features, Tile(rows, columns, 1))
        usual = max(1, persistent.BLOCKS // whole.tiles)
        pieces = dict.fromkeys(map(whole.filled, (usual, max(1, usual // 2), 2 * usual)))
        found[whole] = [Tile(rows, columns, number) for number in pieces]
    full = (plan for plan in found if plan.tiles * plan.area <= _EMPTY * plan.weights)
    first = next(full, list(found)[-1])
    others = (tile for plan in found if plan != first for tile in found[plan])
    return (*found[first], *others)


def weight_gradient(
    x: Float[Array, "b h w c"],
    y: Float[Array, "b h2 w2 n"],
    windows: Windows,
    tile: Tile | None = None,
    interpret: Any = None,
) -> Float[Array, "kh kw c n"]:
    """Computes the gradient of the kernel of a convolution.

    A batch that is not a multiple of 8 is padded, which copies both arguments.

    Args:
      x: images, bfloat16 or float16; ``c`` must be a multiple of 64.
      y: gradient of the results, of the same type; ``n`` must be a multiple of 64.
      windows: the geometry of the convolution.
      tile: one of :func:`tiles`; the first by default.
      interpret: parameters of Mosaic's interpreter, for tests.

    Raises:
      NotImplementedError: the sizes or the type are not supported.
    """
    channels, features = x.shape[3], y.shape[3]
    if not applies(windows, channels, features, x.dtype.name):
        raise refusal(windows, channels, features, x.dtype.name)
    x, y = padded(x, windows), padded(y, windows)
    windows = viewed(windows)
    tile = tile or tiles(windows, channels, features)[0]
    plan = _Plan(windows, channels, features, tile)
    partial_sums = jax.ShapeDtypeStruct(
        (tile.pieces * plan.bands * DEPTH, features), x.dtype if tile.pieces == 1 else jnp.float32
    )
    w = jax.ShapeDtypeStruct((*windows.taps, channels, features), x.dtype)
    pixels = windows.batch * math.prod(windows.result)
    cost = costs.convolution(pixels, w, Epilogue(), (x, y, partial_sums))
    kernel = partial(_kernel, plan=plan)
    sums = persistent.launch(kernel, plan.tiles, partial_sums, cost, interpret)(x, y)
    return sums.reshape(tile.pieces, *w.shape).sum(0, dtype=sums.dtype).astype(w.dtype)


@dataclasses.dataclass(frozen=True)
class _Plan(Units):
    """How the work is divided; a piece of the sum has some steps, and a step some units."""

    channels: int
    features: int
    tile: Tile

    @property
    def lines(self) -> int:
        """Images of a step, each at one pixel."""
        return DEPTH

    @property
    def weights(self) -> int:
        """Numbers of the result."""
        return math.prod(self.windows.taps) * self.channels * self.features

    @property
    def area(self) -> int:
        """Numbers of a tile of the result."""
        return GROUPS * self.tile.rows * self.tile.columns

    @property
    def bands(self) -> int:
        """Bands of the result, each of 64 channels at one tap."""
        return math.prod(self.windows.taps) * self.channels // DEPTH

    @property
    def per_group(self) -> int:
        """Bands of each warp group in a tile."""
        return self.tile.rows // DEPTH

    @property
    def per_piece(self) -> int:
        """Tiles of the result."""
        rows = -(-self.bands // (GROUPS * self.per_group))
        return rows * (self.features // self.tile.columns)

    @property
    def tiles(self) -> int:
        """All tiles."""
        return self.tile.pieces * self.per_piece

    @property
    def steps(self) -> int:
        """Steps of the whole sum."""
        return -(-math.prod(self.windows.result) * self.blocks // self.units)

    @property
    def length(self) -> int:
        """Steps of each piece but the last."""
        return -(-self.steps // self.tile.pieces)

    @property
    def slots(self) -> int:
        """Steps that are loaded ahead, as many as fit."""
        results = GROUPS * _BUFFERS * DEPTH * LINE
        slot = 2 * DEPTH * (GROUPS * self.tile.rows + self.tile.columns)
        return persistent.slots_that_fit(slot, results + ALIGNMENT)  # of the barriers

    def buffers(self, width: int) -> int:
        """Returns the number of buffers that the results of a warp group use in turn.

        A tile uses each equally often, so that the next tile begins with the one used longest ago.

        Args:
          width: columns of a buffer.
        """
        return min(_BUFFERS, self.per_group * self.tile.columns // width)

    def filled(self, pieces: int) -> int:
        """Returns how many of ``pieces`` pieces are not empty."""
        return -(-self.steps // -(-self.steps // pieces))

    def place(self, index: Any) -> tuple[Any, Any, Any]:
        """Returns the piece, the first band and the first feature of a tile."""
        piece, rest = divided(index, self.per_piece)
        rows, column = divided(rest, self.features // self.tile.columns)
        return piece, rows * GROUPS * self.per_group, column * self.tile.columns

    def steps_of(self, piece: Any) -> Any:
        """Returns the number of steps of a piece."""
        return jnp.clip(self.steps - piece * self.length, 0, self.length)

    def source(self, pixel: Any, band: Any) -> tuple[Any, Any, Any]:
        """Returns the row, the column and the first channel that a band needs for a result."""
        tap, part = divided(band, self.channels // DEPTH)
        row, column = self.windows.source(pixel, _ORIGIN, divided(tap, self.windows.taps[1]))
        return row, column, part * DEPTH


def _kernel(x: Any, y: Any, out: Any, *, plan: _Plan) -> None:
    bands, width = GROUPS * plan.per_group, LINE // out.dtype.itemsize

    def scoped(a, b, full, empty, results):
        slots = Slots(plan.slots, full, empty)
        persistent.specialised(
            lambda: _copy(x, y, plan, a, b, slots),
            lambda group: _multiply(out, plan, group, a, b, slots, results),
        )

    pl.run_scoped(
        scoped,
        a=swizzled((plan.slots, bands, DEPTH, DEPTH), x.dtype),
        b=swizzled((plan.slots, DEPTH, plan.tile.columns), y.dtype),
        full=plgpu.Barrier(num_arrivals=plan.units * (bands + 1), num_barriers=plan.slots),
        empty=plgpu.Barrier(num_arrivals=GROUPS, num_barriers=plan.slots),
        results=swizzled((GROUPS, plan.buffers(width), DEPTH, width), out.dtype),
        collective_axes="group",
    )


def _copy(x: Any, y: Any, plan: _Plan, a: Any, b: Any, slots: Slots) -> None:
    """Copies the images and the gradient of the results, as slots become empty."""
    windows = plan.windows

    def tile(index: Any, count: Any) -> Any:
        piece, first, feature = plan.place(index)

        def load(s: Any, slot: Any) -> None:
            full, before = slots.full.at[slot], (piece * plan.length + s) * plan.units

            def unit(number: Any, rows: Any) -> None:
                image, pixel, within = plan.unit(_ORIGIN, before + number)
                here = pl.ds(image, plan.images)
                source = y.at[here, *pixel, pl.ds(feature, plan.tile.columns)]
                plgpu.copy_gmem_to_smem(source, b.at[slot, rows], full)
                for band in range(GROUPS * plan.per_group):
                    row, column, channel = plan.source(pixel, first + band)
                    # After the last unit and the last band, zeros are read.
                    inside = within & (first + band < plan.bands)
                    row = jnp.where(inside, row, windows.image[0])
                    column = jnp.where(inside, column, windows.image[1])
                    start = jnp.where(inside, image, windows.batch)
                    here = pl.ds(start, plan.images)
                    source = x.at[here, row, column, pl.ds(channel, DEPTH)]
                    plgpu.copy_gmem_to_smem(source, a.at[slot, band, rows], full)

            plan.each_unit(plan.units, unit)

        return slots.fill(plan.steps_of(piece), count, load)

    slots.drain(each_tile(plan.tiles, tile))


def _multiply(
    out: Any, plan: _Plan, group: Any, a: Any, b: Any, slots: Slots, results: Any
) -> None:
    """Multiplies the bands of one warp group in all tiles, and stores the sums."""
    _, buffers, _, width = results.shape
    parts = plan.tile.columns // width

    def tile(index: Any, count: Any) -> Any:
        piece, first, feature = plan.place(index)
        first = first + group * plan.per_group

        def scoped(totals: Any) -> Any:
            def product(slot: Any) -> None:
                for band, total in enumerate(totals):
                    images = a.at[slot, group * plan.per_group + band].transpose((1, 0))
                    plgpu.wgmma(total, images, b.at[slot])

            after = slots.multiply(plan.steps_of(piece), count, product, len(totals))
            for band, total in enumerate(totals):
                sums = total[...]
                row = (piece * plan.bands + first + band) * DEPTH
                for part in range(parts):
                    buffer = results.at[group, (band * parts + part) % buffers]
                    # Earlier stores may still read the other buffers.
                    plgpu.wait_smem_to_gmem(buffers - 1, wait_read_only=True)
                    buffer[...] = sums[:, part * width : (part + 1) * width].astype(out.dtype)
                    plgpu.commit_smem()

                    @pl.when(first + band < plan.bands)
                    def _(row: Any = row, part: int = part, buffer: Any = buffer) -> None:
                        here = pl.ds(row, DEPTH), pl.ds(feature + part * width, width)
                        plgpu.copy_smem_to_gmem(buffer, out.at[here], commit_group=False)

                    plgpu.commit_smem_to_gmem_group()
            return after

        accumulator = plgpu.WGMMAAccumulatorRef((DEPTH, plan.tile.columns), jnp.float32)
        return pl.run_scoped(scoped, totals=[accumulator] * plan.per_group)

    each_tile(plan.tiles, tile)
    plgpu.wait_smem_to_gmem(0)
