"""A persistent grid: every block computes tiles in turn; one warp group copies and two multiply."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from jaxatr.kernels.pallas.hopper.tiles import PARAMS, stated

GROUPS = 2  # warp groups that multiply; one more copies
BLOCKS = 132  # multiprocessors of an H100 or H200
ALIGNMENT = 1024  # bytes between the buffers of shared memory
_SHARED = 227 * 1024  # bytes of shared memory of a block
_SLOTS = 6  # the most slots
_REGISTERS = {"copies": 56, "multiplies": 224}  # of a thread; 168 on average


def launch(
    kernel: Callable[..., None], tiles: int, result: Any, cost: Any, interpret: Any
) -> Callable[..., jax.Array]:
    """Returns the call of a kernel with a block for each multiprocessor, if there are enough tiles.

    Args:
      kernel: a function of the operands and the result in global memory.
      tiles: number of tiles.
      result: shape and type of the result.
      cost: the cost estimate.
      interpret: parameters of Mosaic's interpreter, or ``None``.
    """
    return plgpu.kernel(
        kernel,
        out_type=result,
        grid=(min(BLOCKS, tiles),),
        grid_names=("block",),
        num_threads=GROUPS + 1,
        thread_name="group",
        **stated(cost),
        compiler_params=PARAMS,
        **({} if interpret is None else {"interpret": interpret}),
    )


def each_tile(tiles: int, work: Callable[[Any, Any], Any]) -> Any:
    """Calls ``work(tile, count)`` for each tile of this block.

    ``count`` is the number of products before the tile; ``work`` returns the number after it, and
    this function returns the number after the last tile.
    """
    blocks, block = min(BLOCKS, tiles), jax.lax.axis_index("block")
    turns = jax.lax.div(tiles - 1 - block + blocks, jnp.int32(blocks))

    def one(turn: Any, count: Any) -> Any:
        return work(block + turn * blocks, count)

    return jax.lax.fori_loop(0, turns, one, jnp.int32(0))


def specialised(copy: Callable[[], None], multiply: Callable[[Any], None]) -> None:
    """Calls ``copy()`` in one warp group and ``multiply(number)`` in each of the others."""
    group = jax.lax.axis_index("group")

    @pl.when(group == GROUPS)
    def _() -> None:
        plgpu.set_max_registers(_REGISTERS["copies"], action="decrease")
        copy()

    @pl.when(group < GROUPS)
    def _() -> None:
        plgpu.set_max_registers(_REGISTERS["multiplies"], action="increase")
        multiply(group)


def slots_that_fit(slot: int, others: int) -> int:
    """Returns the number of slots of some bytes that fit in shared memory beside other buffers."""
    return min(_SLOTS, (_SHARED - others) // slot)


class Slots(NamedTuple):
    """Buffers for the operands of a product, which are loaded ahead.

    Attributes:
      number: number of slots.
      full: a barrier for each slot, at which its copies arrive.
      empty: a barrier for each slot, at which the groups that multiply arrive.
    """

    number: int
    full: Any
    empty: Any

    def of(self, count: Any) -> Any:
        """Returns the slot of a product by the number of products before it."""
        return jax.lax.rem(count, jnp.int32(self.number))

    def fill(self, steps: Any, count: Any, load: Callable[[Any, Any], None]) -> Any:
        """Calls ``load(step, slot)`` for each step, when the slot is empty; returns the new count.

        Args:
          steps: number of products.
          count: number of products before them.
          load: starts the copies of a step into a slot.
        """

        def step(s: Any, count: Any) -> Any:
            slot = self.of(count)

            @pl.when(count >= self.number)
            def _() -> None:
                plgpu.barrier_wait(self.empty.at[slot])

            load(s, slot)
            return count + 1

        return jax.lax.fori_loop(0, steps, step, count)

    def drain(self, count: Any) -> None:
        """Waits for the last products: no block may end before them."""
        for slot in range(self.number):

            @pl.when(count > slot)
            def _(slot: int = slot) -> None:
                plgpu.barrier_wait(self.empty.at[slot])

    def multiply(
        self, steps: Any, count: Any, product: Callable[[Any], None], parts: int = 1
    ) -> Any:
        """Calls ``product(slot)`` for each step, when the slot is full; returns the new count.

        A slot is released one step after its product was issued, when that product is known to be
        done.

        Args:
          steps: number of products.
          count: number of products before them.
          product: issues the product of a slot.
          parts: number of tensor-core products that ``product`` issues.
        """

        def step(s: Any, count: Any) -> Any:
            slot = self.of(count)
            plgpu.barrier_wait(self.full.at[slot])
            product(slot)
            plgpu.wgmma_wait(parts)

            @pl.when(s > 0)  # the product before is done
            def _() -> None:
                plgpu.barrier_arrive(self.empty.at[self.of(count - 1)])

            return count + 1

        after = jax.lax.fori_loop(0, steps, step, count)
        plgpu.wgmma_wait(0)

        @pl.when(steps > 0)
        def _() -> None:
            plgpu.barrier_arrive(self.empty.at[self.of(after - 1)])

        return after
