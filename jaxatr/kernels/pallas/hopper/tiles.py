"""Tiles: buffers in shared memory and the asynchronous copies that fill and store them."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu

PARAMS = plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup)
TILE = "tile"  # the grid's one axis


def grid(rows: int, columns: int) -> dict[str, Any]:
    """Returns the options of a one-dimensional grid with one block per tile.

    It has a single axis because CUDA allows 2^31 - 1 blocks along the first axis but only 65,535
    along the others; a larger launch aborts the process. The tiles of a row are consecutive, so
    that the data they share is in the cache.
    """
    return {"grid": (rows * columns,), "grid_names": (TILE,)}


def stated(cost: Any) -> dict[str, Any]:
    """Returns the option ``cost_estimate`` if this version of jax has it; jax 0.10 does not."""
    known = "cost_estimate" in inspect.signature(plgpu.kernel).parameters
    return {"cost_estimate": cost} if known else {}


def place(columns: int) -> tuple[jax.Array, jax.Array]:
    """Returns the row and column of a block's tile in a grid with ``columns`` tiles per row."""
    index = jax.lax.axis_index(TILE)
    return jax.lax.div(index, columns), jax.lax.rem(index, columns)


def swizzled(shape: tuple[int, ...], dtype: Any, line: int | None = None) -> Any:
    """Returns a shared-memory buffer in the swizzled layout of tensor cores and TMA.

    Args:
      shape: the buffer's shape.
      dtype: type of its elements.
      line: bytes of a line of the layout, 32, 64 or 128; by default as many as divide a row. The
        operands of a product must have the same.
    """
    swizzle = line or plgpu.find_swizzle(shape[-1] * jnp.dtype(dtype).itemsize * 8)
    elements = swizzle // jnp.dtype(dtype).itemsize
    transforms = (plgpu.TilingTransform((8, elements)), plgpu.SwizzleTransform(swizzle))
    return plgpu.SMEM(shape, dtype, transforms=transforms)


def fetch(copies: Sequence[tuple[Any, Any]], barrier: Any) -> None:
    """Starts copies from global to shared memory; the barrier counts their arrivals."""
    for source, target in copies:
        plgpu.copy_gmem_to_smem(source, target, barrier)


def reader(interpret: Any) -> Callable[[Any, tuple[Any, ...]], jax.Array]:
    """Returns ``read(array, index)``, which reads global memory directly into registers.

    Args:
      interpret: parameters of Mosaic's interpreter, or None; it reads by an ordinary index only.
    """
    load: Any = plgpu.load
    if interpret is not None:
        return lambda source, index: source[index]
    if "idx" in inspect.signature(load).parameters:  # before jax 0.12
        return lambda source, index: load(source, index, optimized=False)
    return lambda source, index: load(source.at[index], optimized=False)


def store(copies: Sequence[tuple[Any, Any]]) -> None:
    """Copies from shared to global memory and waits until the source has been read."""
    plgpu.commit_smem()
    for source, target in copies:
        plgpu.copy_smem_to_gmem(source, target)
    plgpu.wait_smem_to_gmem(0)
