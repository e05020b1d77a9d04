"""Chooses the kernels of a run once, writes them down, and keeps to them from then on.

Which algorithm is the fastest is measured, and a measurement can come out otherwise another day;
the bits of a result follow the algorithm. So the choices are part of the run's record.
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
MADE_FOR = "kernels_for"  # the device, which the rest of the record follows when a run moves


def recorded_choices(workdir: str | os.PathLike, phase: str) -> dict[str, Any]:
    """Returns the kernels of a run's phase where this is the same kind of device; else the rules.

    What is in the database today must not change the figures of a run.

    Args:
      workdir: the run's folder.
      phase: its name.
    """
    record = read_record(workdir)
    return record.get(RECORDED, {}).get(phase, {}) if _made_for(record) == _here() else {}


def _here() -> dict[str, str]:
    device = jax.devices()[0]
    return {"platform": device.platform, "kind": device.device_kind}


def _made_for(record: dict[str, Any]) -> dict[str, Any]:
    """Returns the device of a record's choices; earlier versions wrote down the run's alone."""
    device = record.get(MADE_FOR) or record.get("device", {})
    return {name: device.get(name) for name in ("platform", "kind")}


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
        record, here = read_record(self._workdir), _here()
        recorded = dict(record.get(RECORDED, {}))
        moved = bool(recorded) and (before := _made_for(record)) != here
        if moved:
            if any(recorded.values()):
                warnings.warn(
                    f"{self._workdir}: the kernels of this run were chosen for {before['kind']}, "
                    f"and are chosen anew for {here['kind']}: its bits are no longer those of one "
                    "device",
                    stacklevel=2,
                )
            recorded = {}
        if phase not in recorded:
            if self.resumed and not recorded and not moved:
                return {}
            recorded[phase] = kernels.freeze(lower, measure=self._find, watch=self._watch).to_json()
            update_record(self._workdir, **{RECORDED: recorded, MADE_FOR: here})
        return recorded[phase]

    def _watch(self, keys: list[str]) -> Iterable[str]:
        """Shows a bar on a terminal, a line elsewhere."""
        if not self._progress or not keys:
            return keys
        if not sys.stderr.isatty():
            print(f"finding kernels for {len(keys)} problems", file=sys.stderr, flush=True)
            return keys
        return tqdm(keys, desc="finding kernels", unit="problem")
