"""The matrix product: a loop of tensor-core products over tiles that are loaded ahead."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def product(
    a: Any, b: Any, barrier: Any, steps: int, load: Callable[[Any, Any], None]
) -> jax.Array:
    """Returns the sum of ``steps`` products of tiles, in float32.

    A slot is reloaded one step after its product was issued, when that product is known to be done;
    the copies for the steps in between are in flight meanwhile.

    Args:
      a: ``[slots, m, k]`` in shared memory.
      b: ``[slots, k, n]`` in shared memory.
      barrier: one barrier per slot.
      steps: number of products.
      load: ``(step, slot)`` starts the copies of a step into a slot.
    """
    slots = a.shape[0]
    for step in range(min(slots, steps)):
        load(step, step)

    def scoped(accumulator: Any) -> jax.Array:
        def one(step: Any, _: None) -> None:
            slot = jax.lax.rem(step, slots)
            plgpu.barrier_wait(barrier.at[slot])
            plgpu.wgmma(accumulator, a.at[slot], b.at[slot])
            plgpu.wgmma_wait(1)
            ahead = step - 1 + slots

            @pl.when((step > 0) & (ahead < steps))
            def _() -> None:
                load(ahead, jax.lax.rem(ahead, slots))

        jax.lax.fori_loop(0, steps, one, None)
        plgpu.wgmma_wait(0)
        return accumulator[...]

    shape = (a.shape[1], b.shape[2])
    return pl.run_scoped(scoped, accumulator=plgpu.WGMMAAccumulatorRef(shape, jnp.float32))
