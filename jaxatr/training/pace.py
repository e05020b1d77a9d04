"""Dispatches steps so that a training on a CPU needs the memory of one step only."""

import time
from typing import TYPE_CHECKING, Any

import jax

from jaxatr import memory
from jaxatr.typing import PyTree

if TYPE_CHECKING:
    from jaxatr.training.step import Step

_FREED = 5e-3  # seconds in which XLA:CPU frees a step's temporary arrays, once it has its results


class Pace:
    """Gives memory back after compilation, and keeps the arrays of two large steps apart.

    The results of a step are ready shortly before XLA:CPU frees its temporary arrays, which are one
    allocation. A step that waits for these results starts at once, so that both have their
    temporary arrays for a while. If these have at least :data:`jaxatr.memory.LARGE` bytes, the host
    therefore waits for a step before it dispatches the next, which takes a hundredth of their time.
    Small steps, and those of other devices, are dispatched ahead.
    """

    def __init__(self):
        """Starts without knowing any step."""
        self._large: dict[str, bool] = {}
        self._awaited: PyTree = None  # results of the last step, if it is large

    def dispatch(self, name: str, step: "Step", *arguments: Any) -> tuple[Any, Any]:
        """Calls ``step(*arguments)``, and compiles it first if its name is new.

        Args:
          name: the step's program, such as its phase.
          step: returns its new state and other results, which the next call does not donate.
          arguments: the step's.
        """
        first = name not in self._large
        if first:
            self._large[name] = _needs_large_array(step, *arguments)
        large = self._large[name]
        # Compilation takes up to a megabyte for each kernel, and leaves it free between arrays. The
        # large array of a first step would be allocated beyond it.
        if first and large:
            memory.separate_large()
        if self._awaited is not None:
            jax.block_until_ready(self._awaited)
            time.sleep(_FREED)
        state, results = step(*arguments)
        self._awaited = results if large else None
        if first and not large:
            jax.block_until_ready(results)
            memory.give_back()
        return state, results


def _needs_large_array(step: "Step", *arguments: Any) -> bool:
    """Compiles a step; returns whether its temporary arrays are large, and on a CPU."""
    analysis = step.lower(*arguments).compile().memory_analysis()
    (device, *_) = jax.tree.leaves(arguments)[0].devices()
    if device.platform != "cpu" or analysis is None:
        return False
    return analysis.temp_size_in_bytes >= memory.LARGE
