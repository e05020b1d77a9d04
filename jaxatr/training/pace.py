"""When a step may be dispatched, so that a training on a CPU needs the memory of one step only."""

import time

import jax

from jaxatr import memory
from jaxatr.typing import PyTree

_FREED = 5e-3  # seconds in which XLA:CPU frees a step's temporary arrays, once it has its results
_BEGUN = 0.05  # seconds after which a step that was dispatched has allocated its arrays


class Pace:
    """Gives memory back after a first step, and keeps the arrays of two large steps apart.

    The results of a step are ready shortly before XLA:CPU frees its temporary arrays. A step that
    waits for these results starts at once, so that both have their temporary arrays for a while. If
    these are at least :data:`jaxatr.memory.LARGE` bytes, the host therefore waits for a step before
    it dispatches the next, which takes a hundredth of their time. Small steps, and those of other
    devices, are dispatched ahead.
    """

    def __init__(self):
        """Starts without knowing any step."""
        self._large: dict[str, bool] = {}
        self._last: tuple[str, PyTree] | None = None

    def wait(self) -> None:
        """Waits until the last step has freed its temporary arrays, if they are large."""
        if self._last is not None and self._large[self._last[0]]:
            _wait(self._last[1])

    def dispatched(self, name: str, results: PyTree) -> None:
        """Takes note of a step, right after its call.

        Args:
          name: the step's program, such as its phase. Its first step is waited for.
          results: arrays that the step computes.
        """
        self._last = name, results
        if name in self._large:
            return
        time.sleep(_BEGUN)
        during = memory.allocated()
        _wait(results)
        self._large[name] = during - memory.allocated() >= memory.LARGE
        # Compilation leaves fragmented free memory between the arrays of the first step. Unless it
        # is returned, the next step's arrays are allocated beyond it, and the process keeps more
        # memory than a step needs.
        (memory.separate_large if self._large[name] else memory.give_back)()


def _wait(results: PyTree) -> None:
    jax.block_until_ready(results)
    time.sleep(_FREED)
