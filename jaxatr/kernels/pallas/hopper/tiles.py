"""Loading tiles: buffers in shared memory, and the asynchronous copies that fill them."""

import inspect
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu

PARAMS = plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup)
TILE = "tile"  # the grid's one axis


def grid(rows: int, columns: int) -> dict[str, Any]:
    """Returns the options of a grid of one block per tile.

    It has one axis: CUDA takes 2^31 - 1 blocks along the first, and 65,535 along the others, beyond
    which a launch ends the process. A row's tiles follow each other, so that what they share is in
    the cache.
    """
    return {"grid": (rows * columns,), "grid_names": (TILE,)}


def stated(cost: Any) -> dict[str, Any]:
    """Returns the option that states a kernel's cost, where jax has it: 0.10 has not."""
    known = "cost_estimate" in inspect.signature(plgpu.kernel).parameters
    return {"cost_estimate": cost} if known else {}


def place(columns: int) -> tuple[jax.Array, jax.Array]:
    """Returns the row and column of a block's tile, where a row has so many columns."""
    index = jax.lax.axis_index(TILE)
    return jax.lax.div(index, columns), jax.lax.rem(index, columns)


def swizzled(shape: tuple[int, ...], dtype: Any) -> Any:
    """Returns a buffer in shared memory in the order that tensor cores read and TMA writes."""
    swizzle = plgpu.find_swizzle(shape[-1] * jnp.dtype(dtype).itemsize * 8)
    elements = swizzle // jnp.dtype(dtype).itemsize
    transforms = (plgpu.TilingTransform((8, elements)), plgpu.SwizzleTransform(swizzle))
    return plgpu.SMEM(shape, dtype, transforms=transforms)


def fetch(copies: Sequence[tuple[Any, Any]], barrier: Any) -> None:
    """Starts copies from global into shared memory; the barrier counts each that has arrived."""
    for source, target in copies:
        plgpu.copy_gmem_to_smem(source, target, barrier)


def store(copies: Sequence[tuple[Any, Any]]) -> None:
    """Copies from shared into global memory, and waits until the source has been read."""
    plgpu.commit_smem()
    for source, target in copies:
        plgpu.copy_smem_to_gmem(source, target)
    plgpu.wait_smem_to_gmem(0)
