"""Checkpoints: saved asynchronously by orbax, proved whole before they are used.

A checkpoint holds the train state, the hook's state, and a JSON record: the data position of every
process, the open windows of the metrics, a fingerprint of the run and a checksum of every array. On
restore everything is checked, so that a file cut short, a flipped bit or another run's checkpoint
is named and passed over, never trained on.
"""

import json
import logging
import os
import warnings
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from orbax.checkpoint import checkpoint_managers

from jaxatr.training.state import flatten

FOLDER = "checkpoints"
SET_ASIDE = "checkpoints_set_aside"

_ITEMS = ("state", "hook", "record")


class CheckpointError(RuntimeError):
    """A checkpoint could not be written, or none of those that exist can be used."""


class Snapshot(NamedTuple):
    """What a checkpoint holds.

    Attributes:
      step: how many steps were taken.
      state: nested dictionaries of arrays (``jaxatr.training.state.to_arrays``).
      hook: dictionary of arrays, the state of the task's hook; empty without one.
      progress: JSON values: data positions and open metric windows.
      metrics: the last evaluation's metrics; ``None`` before the first.
    """

    step: int
    state: dict[str, Any]
    hook: dict[str, Any]
    progress: dict[str, Any]
    metrics: dict[str, float] | None


class Checkpoints:
    """The checkpoints of one run, under ``workdir/checkpoints``.

    Used as a context: leaving it waits for the save that is under way.
    """

    def __init__(self, workdir: str | os.PathLike, *, fingerprint: str, keep: int, best: str):
        """Opens or creates the folder, and clears away what an interrupted save left behind.

        Args:
          workdir: the run's folder.
          fingerprint: tells this run's checkpoints from those of another.
          keep: how many of the newest to keep.
          best: name of the metric whose highest value's checkpoint is kept besides.
        """
        if keep < 1:
            raise ValueError(f"keep: got {keep}, wanted at least 1")
        self._workdir = Path(workdir).absolute()
        self._fingerprint = fingerprint
        self._best = best
        self._manager = self._open(keep)

    def _open(self, keep: int) -> ocp.CheckpointManager:
        kept = checkpoint_managers.AnyPreservationPolicy(
            [
                checkpoint_managers.LatestN(keep),
                checkpoint_managers.BestN(
                    get_metric_fn=lambda metrics: _rank(metrics, self._best),
                    n=1,
                    keep_checkpoints_without_metrics=False,
                ),
            ]
        )
        options = ocp.CheckpointManagerOptions(
            preservation_policy=kept,
            best_fn=lambda metrics: _rank(metrics, self._best),
            cleanup_tmp_directories=True,
        )
        logging.getLogger("absl").setLevel(logging.ERROR)
        return ocp.CheckpointManager(self._workdir / FOLDER, options=options, item_names=_ITEMS)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_: object) -> None:
        self._manager.close()

    @property
    def latest(self) -> int | None:
        """The newest step that was saved, or is being saved."""
        return self._manager.latest_step()

    def save(self, snapshot: Snapshot, *, evaluated: bool) -> None:
        """Starts to write a checkpoint, after the one before it is on the disk.

        Args:
          snapshot: the arrays must not change any more.
          evaluated: its metrics were measured at this very step, so it may be the best.

        Raises:
          CheckpointError: this save or the one before it failed (a full disk, say).
        """
        content = {
            "step": snapshot.step,
            "fingerprint": self._fingerprint,
            "progress": snapshot.progress,
            "metrics": snapshot.metrics,
            "checksums": {"state": _checksums(snapshot.state), "hook": _checksums(snapshot.hook)},
        }
        args = {
            "state": ocp.args.StandardSave(snapshot.state),
            "record": ocp.args.JsonSave({"content": content, "crc32": _json_checksum(content)}),
        }
        if snapshot.hook:
            args["hook"] = ocp.args.StandardSave(snapshot.hook)
        try:
            self._manager.save(
                snapshot.step,
                args=ocp.args.Composite(**args),
                metrics=snapshot.metrics if evaluated else None,
            )
        except Exception as error:
            raise self._failed(error) from error

    def wait(self) -> None:
        """Returns when everything is on the disk.

        Raises:
          CheckpointError: the save under way failed.
        """
        try:
            self._manager.wait_until_finished()
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> CheckpointError:
        self._manager.reload()
        return CheckpointError(
            f"a checkpoint could not be saved under {self._workdir / FOLDER}: {error}; "
            f"checkpoints still there: {sorted(self._manager.all_steps()) or 'none'}"
        )

    def restore(self) -> Snapshot | None:
        """Returns the newest whole checkpoint of this run, or ``None`` if there is none at all.

        One that is not whole or not of this run is warned about by name and moved to
        ``workdir/checkpoints_set_aside``, so that its step can be saved again.

        Raises:
          CheckpointError: there are checkpoints and none of them can be used.
        """
        steps = sorted(self._manager.all_steps(), reverse=True)
        for step in steps:
            try:
                return self._read(step)
            except Exception as error:
                warnings.warn(f"checkpoint {step} is not used: {error}", stacklevel=2)
                self._set_aside(step)
        if steps:
            raise CheckpointError(
                f"none of the checkpoints {steps} of {self._workdir} can be used (they are now in "
                f"{SET_ASIDE}): start with another workdir, or put a whole one back"
            )
        return None

    def _read(self, step: int) -> Snapshot:
        found = self._manager.restore(step, args=ocp.args.Composite(record=ocp.args.JsonRestore()))
        record = found["record"]
        content = record["content"]
        if _json_checksum(content) != record["crc32"]:
            raise ValueError("its record has another checksum than was written")
        if content["step"] != step or content["fingerprint"] != self._fingerprint:
            raise ValueError(
                f"it is step {content['step']} of run {content['fingerprint']}, "
                f"wanted step {step} of run {self._fingerprint}"
            )
        items = [name for name in ("state", "hook") if content["checksums"][name]]
        found = self._manager.restore(
            step,
            args=ocp.args.Composite(**{name: ocp.args.StandardRestore() for name in items}),
        )
        for name in items:
            _verify(found[name], content["checksums"][name])
        return Snapshot(
            step,
            found["state"],
            found["hook"] if "hook" in items else {},
            content["progress"],
            content["metrics"],
        )

    def _set_aside(self, step: int) -> None:
        multihost_utils.sync_global_devices(f"set aside {step}")  # all have read it
        if jax.process_index() == 0:
            folder = self._workdir / SET_ASIDE
            folder.mkdir(exist_ok=True)
            taken = len(list(folder.iterdir()))
            (self._workdir / FOLDER / str(step)).rename(folder / f"{step}.{taken}")
        multihost_utils.sync_global_devices(f"set aside {step}, done")
        self._manager.reload()


def _rank(metrics: Any, name: str) -> float:
    value = float(metrics[name])
    return -np.inf if np.isnan(value) else value


def _checksums(arrays: dict[str, Any]) -> dict[str, str]:
    return {name: _describe(leaf) for name, leaf in flatten(arrays).items()}


def _describe(leaf: Any) -> str:
    leaf = np.ascontiguousarray(leaf)
    return f"{leaf.dtype.name}{list(leaf.shape)} crc32 {zlib.crc32(leaf.reshape(-1).view(np.uint8))}"


def _json_checksum(content: Any) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def _verify(arrays: dict[str, Any], recorded: dict[str, str]) -> None:
    found = _checksums(arrays)
    for name in sorted(recorded | found):
        if found.get(name) != recorded.get(name):
            raise ValueError(f"{name} is {found.get(name)}, recorded was {recorded.get(name)}")
