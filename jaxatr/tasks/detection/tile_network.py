"""A detector's network in an engine, from tiles of any size to targets."""

from typing import Any

import jax
import numpy as np

from jaxatr.kernels.compiled import Compiled
from jaxatr.onnx.sessions import OWN, Session
from jaxatr.tasks.detection.decoding import Decoded, decode
from jaxatr.tasks.runtime import Infer, engine_note, ready_network
from jaxatr.training import TrainedRun
from jaxatr.typing import PyTree, Shaped

_MOST = 64
"""Sizes of tiles whose programs stay in memory."""


class TileNetwork:
    """A detector's network in an engine.

    jax's own engines compile a program for each size of tiles. The others have a file for each
    size, which is written when it is first needed. The latest sizes stay in memory.

    Attributes:
      variables: the network's variables, on the device if jax runs it.
      note: names the engine and its version; empty for plain jax.
    """

    def __init__(self, run: TrainedRun, runtime: str):
        """Prepares the network for whole tiles.

        Args:
          run: the run.
          runtime: one of :data:`jaxatr.onnx.sessions.RUNTIMES`.

        Raises:
          ValueError: the network does not run in the engine.
          ImportError: a package is not installed; the message names the extra.
        """
        self.variables = jax.device_put(run.variables) if runtime in OWN else run.variables
        self._run, self._runtime = run._replace(variables=self.variables), runtime
        self._ready: dict[tuple[int, int], Compiled | Session] = {}
        side = run.config.detection.tile
        self.note = engine_note(self._of_size(side, side))

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the compiled networks, which a copy compiles anew, also in another process."""
        return {**vars(self), "_ready": {}}

    def __call__(self, tiles: Shaped[np.ndarray, "b h w c"]) -> Decoded:
        """Finds the targets of a batch of tiles, whose sides are multiples of 32 pixels."""
        return Decoded(**self._of_size(*tiles.shape[1:3])(tiles))

    def _of_size(self, height: int, width: int) -> Compiled | Session:
        run, record = self._run, self._run.record
        if (ready := self._ready.pop((height, width), None)) is None:
            shape = (1, height, width, int(record["channels"]))
            ready = ready_network(
                run,
                _network,
                self.variables,
                [np.zeros(shape, record["image_dtype"])],
                runtime=self._runtime,
                about={run.config.detection.to_json()},
            )
            if len(self._ready) >= _MOST:
                self._ready.pop(next(iter(self._ready)), None)
        self._ready[height, width] = ready  # the last, as it was used last
        return ready


def _network(run: TrainedRun) -> Infer:
    """Builds ``(variables, tiles) -> fields of`` :class:`Decoded`."""
    module, fields = run.module, run.config.detection

    def infer(variables: PyTree, tiles: jax.Array) -> dict[str, jax.Array]:
        out = module.apply(variables, run.normalize(tiles))
        return decode(out, most=fields.most, overlap=fields.overlap)._asdict()

    return infer
