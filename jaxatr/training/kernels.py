"""The choice of kernels for a run, made once and recorded.

The exact bits of a result depend on the algorithm, and measurements of the fastest algorithm can
vary from day to day. So that a resumed run uses the same kernels, they are part of its record.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import jax
from tqdm import tqdm

from jaxatr import kernels, parallel
from jaxatr.training.record import read_record, update_record

RECORDED = "kernels"
MADE_FOR = "kernels_for"  # device of the choices; ``device`` changes when a run moves to another


def recorded_choices(workdir: str | os.PathLike, phase: str) -> dict[str, Any]:
    """Returns the recorded kernels of a phase; empty on another kind of device.

    The present content of the kernel database must not change a run's results.
    """
    record = read_record(workdir)
    return record.get(RECORDED, {}).get(phase, {}) if _made_for(record) == _here() else {}


def _here() -> dict[str, str]:
    device = jax.devices()[0]
    return {"platform": device.platform, "kind": device.device_kind}


def _made_for(record: dict[str, Any]) -> dict[str, Any]:
    """Returns the device of a record's choices; earlier versions recorded only the run's device."""
    device = record.get(MADE_FOR) or record.get("device", {})
    return {name: device.get(name) for name in ("platform", "kind")}


class KernelChoices:
    """The kernel choices of each phase of a run.

    Attributes:
      resumed: whether the run continues from a checkpoint. If it was started before choices were
        recorded, it keeps using the heuristic.
    """

    def __init__(self, workdir: str | os.PathLike, *, find: bool, progress: bool):
        """Prepares choices, which are made when a phase first needs them.

        Args:
          workdir: the run's folder.
          find: measure problems that are not in the database.
          progress: show the progress of the measurements.
        """
        self._workdir, self._find, self._progress = workdir, find, progress
        self._pinned: dict[str, kernels.Choices] = {}
        self.resumed = False

    def of(self, phase: str, lower: Callable[[], object]) -> kernels.Choices:
        """Returns the choices for a phase, made by process 0 and recorded before its first step.

        Every process must call this at the same step.

        Args:
          phase: name of the phase.
          lower: lowers one step, to find the kernel problems in it.

        Raises:
          ValueError: the recorded choices are invalid.
        """
        if phase not in self._pinned:
            decided = None if jax.process_index() else self._decide(phase, lower)
            if decided is None or jax.process_count() > 1:
                sent = None if decided is None else decided.to_json()
                decided = kernels.Choices.from_json(parallel.gather_json(sent)[0])
            self._pinned[phase] = decided
        return self._pinned[phase]

    def _decide(self, phase: str, lower: Callable[[], object]) -> kernels.Choices:
        record, here = read_record(self._workdir), _here()
        recorded = dict(record.get(RECORDED, {}))
        moved = bool(recorded) and (before := _made_for(record)) != here
        if moved:
            if any(recorded.values()):
                warnings.warn(
                    f"{self._workdir}: the kernels of this run were chosen for {before['kind']}, "
                    f"and are chosen anew for {here['kind']}: its results are no longer "
                    "bit-identical to those of an uninterrupted run",
                    stacklevel=2,
                )
            recorded = {}
        if phase not in recorded:
            if self.resumed and not recorded and not moved:
                return kernels.Choices({})
            choices = kernels.freeze(lower, measure=self._find, watch=self._watch)
            recorded[phase] = choices.to_json()
            update_record(self._workdir, **{RECORDED: recorded, MADE_FOR: here})
            return choices
        return kernels.Choices.from_json(recorded[phase])

    def _watch(self, keys: list[str]) -> Iterable[str]:
        """Shows a progress bar on a terminal, and prints a line otherwise."""
        if not self._progress or not keys:
            return keys
        if not sys.stderr.isatty():
            print(f"finding kernels for {len(keys)} problems", file=sys.stderr, flush=True)
            return keys
        return tqdm(keys, desc="finding kernels", unit="problem")
