"""What computes the steps of a run: chosen once, written down, and the same from then on.

Which algorithm is the fastest is measured, and a measurement can come out otherwise another day;
the bits of a result follow the algorithm. So the choices are part of the run's record.
"""

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import jax
from tqdm import tqdm

from jaxatr import kernels, parallel
from jaxatr.training.record import read_record, update_record

RECORDED = "kernels"


def recorded_choices(workdir: str | os.PathLike, phase: str) -> dict[str, Any]:
    """Returns what computed a run's phase, where this is the same kind of device; else the rules.

    What is in the database today must not change the figures of a run.

    Args:
      workdir: the run's folder.
      phase: its name.
    """
    record, here = read_record(workdir), jax.devices()[0]
    device = record.get("device", {})
    if (device.get("platform"), device.get("kind")) != (here.platform, here.device_kind):
        return {}
    return record.get(RECORDED, {}).get(phase, {})


class KernelChoices:
    """The choices of each phase of a run.

    Attributes:
      resumed: whether the run continues from a checkpoint. One that was begun before choices were
        recorded went by the rules, and still does.
    """

    def __init__(self, workdir: str | os.PathLike, *, find: bool, progress: bool):
        """Chooses nothing yet.

        Args:
          workdir: the run's folder.
          find: measure what the database does not know.
          progress: show how far that is.
        """
        self._workdir, self._find, self._progress = workdir, find, progress
        self._pinned: dict[str, kernels.Choices] = {}
        self.resumed = False

    def of(self, phase: str, lower: Callable[[], object]) -> kernels.Choices:
        """Returns the choices of a phase's steps: process 0's, recorded before the first step.

        Every process must ask at the same step.

        Args:
          phase: its name.
          lower: lowers one step, to see what it asks for.

        Raises:
          ValueError: the record holds no choices that can be read.
        """
        if phase not in self._pinned:
            decided = None if jax.process_index() else self._decide(phase, lower)
            with kernels.choices(parallel.gather_json(decided)[0]) as choices:
                self._pinned[phase] = choices
        return self._pinned[phase]

    def _decide(self, phase: str, lower: Callable[[], object]) -> dict[str, Any]:
        recorded = dict(read_record(self._workdir).get(RECORDED, {}))
        if phase not in recorded:
            if self.resumed and not recorded:
                return {}
            recorded[phase] = kernels.freeze(lower, measure=self._find, watch=self._watch).to_json()
            update_record(self._workdir, **{RECORDED: recorded})
        return recorded[phase]

    def _watch(self, keys: list[str]) -> Iterable[str]:
        """Shows a bar on a terminal, a line elsewhere."""
        if not self._progress or not keys:
            return keys
        if not sys.stderr.isatty():
            print(f"finding kernels for {len(keys)} problems", file=sys.stderr, flush=True)
            return keys
        return tqdm(keys, desc="finding kernels", unit="problem")
