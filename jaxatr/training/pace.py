"""Dispatches steps so that a training on a CPU needs the memory of one step only."""

import time
from typing import TYPE_CHECKING, Any

import jax

from jaxatr import memory, parallel
from jaxatr.typing import PyTree

if TYPE_CHECKING:
    from jaxatr.training.step import Step

_LARGE = 64 << 20  # bytes of temporary arrays that two steps should not have at a time
_FREED = 2e-3  # seconds in which XLA:CPU frees a step's temporary arrays, once it has its results


class Pace:
    """Readies memory after compilation, and keeps the arrays of two large steps apart.

    The results of a step are ready shortly before XLA:CPU frees its temporary arrays, which are one
    allocation. A step that waits for these results starts at once, so that both have their
    temporary arrays for a while. If these are large, the host therefore waits for a step before it
    dispatches the next, which takes a hundredth of their time. Small steps, and those of other
    devices, are dispatched ahead. After
    :func:`jaxatr.parallel.compute_inline`, there is nothing to wait for.
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
        if name not in self._large:
            memory.give_back()  # of earlier compilations, such as that of the initialisation
            size = _temporary_bytes(step, *arguments)
            memory.reserve(size)
            self._large[name] = size >= _LARGE and not parallel.computes_inline()
        if self._awaited is not None:
            jax.block_until_ready(self._awaited)
            time.sleep(_FREED)
        state, results = step(*arguments)
        self._awaited = results if self._large[name] else None
        return state, results


def _temporary_bytes(step: "Step", *arguments: Any) -> int:
    """Compiles a step; returns the size of its temporary arrays, 0 if unknown or not on a CPU."""
    analysis = step.lower(*arguments).compile().memory_analysis()
    (device, *_) = jax.tree.leaves(arguments)[0].devices()
    return analysis.temp_size_in_bytes if device.platform == "cpu" and analysis else 0
