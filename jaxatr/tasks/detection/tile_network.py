"""A detector's network in an engine, from tiles of any size to targets."""

import jax
import numpy as np

from jaxatr.kernels.compiled import Compiled
from jaxatr.onnx.sessions import OWN, Session
from jaxatr.tasks.detection.decoding import Decoded, decode
from jaxatr.tasks.runtime import Infer, engine_note, ready_network
from jaxatr.training import TrainedRun
from jaxatr.typing import PyTree, Shaped


class TileNetwork:
    """A detector's network in an engine.

    jax's own engines compile a program for each shape of tiles. The others have a file for each
    size, which is written when it is first needed.

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
        own = runtime in OWN
        self.variables = jax.device_put(run.variables) if own else run.variables
        self._run, self._runtime, side = run, runtime, run.config.detection.tile
        self._one = self._ready(side, side)
        self._sized = {(side, side): self._one}
        self.note = engine_note(self._one)

    def __call__(self, tiles: Shaped[np.ndarray, "b h w c"]) -> Decoded:
        """Finds the targets of a batch of tiles, whose sides are multiples of 32 pixels."""
        if self._runtime in OWN:
            return Decoded(**self._one(tiles))
        height, width = size = tiles.shape[1:3]
        if size not in self._sized:
            self._sized[size] = self._ready(height, width)
        return Decoded(**self._sized[size](tiles))

    def _ready(self, height: int, width: int) -> Compiled | Session:
        run, record = self._run, self._run.record
        shape = (1, height, width, int(record["channels"]))
        return ready_network(
            run,
            _network,
            self.variables,
            [np.zeros(shape, record["image_dtype"])],
            runtime=self._runtime,
            about={run.config.detection.to_json()},
        )


def _network(run: TrainedRun) -> Infer:
    """Builds ``(variables, tiles) -> fields of`` :class:`Decoded`."""
    module, fields = run.module, run.config.detection

    def infer(variables: PyTree, tiles: jax.Array) -> dict[str, jax.Array]:
        out = module.apply(variables, run.normalize(tiles))
        return decode(out, most=fields.most, overlap=fields.overlap)._asdict()

    return infer
