"""The checkpoints of a run: written asynchronously by orbax, the newest whole one read back.

A file cut short, a flipped bit or another run's checkpoint is named and passed over, never trained
on. A save that is interrupted leaves a temporary folder, never a checkpoint.
"""

import dataclasses
import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from orbax.checkpoint import checkpoint_managers

from jaxatr.training.record import read_record
from jaxatr.training.snapshot import Snapshot, rank, read_score, read_snapshot, save_arguments

FOLDER = "checkpoints"
SET_ASIDE = "checkpoints_set_aside"


class CheckpointError(RuntimeError):
    """A checkpoint could not be written, or none of those that exist can be used."""


class Checkpoints:
    """The checkpoints under ``workdir/checkpoints``, for the one run that writes them.

    Used as a context: leaving it waits for the save that is under way.
    """

    def __init__(self, workdir: str | os.PathLike, *, fingerprint: str, keep: int):
        """Opens or creates the folder, and clears away what an interrupted save left behind.

        Args:
          workdir: the run's folder.
          fingerprint: tells this run's checkpoints from those of another.
          keep: how many of the newest to keep; the best is kept besides.
        """
        if keep < 1:
            raise ValueError(f"keep: got {keep}, wanted at least 1")
        self._workdir = Path(workdir).absolute()
        self._fingerprint = fingerprint
        self._scores: dict[int, float] = {}
        self._manager = _open(
            self._workdir,
            preservation_policy=_NewestAndBest(keep, self._scores),
            cleanup_tmp_directories=True,
        )
        steps = self._manager.all_steps()
        self._scores |= {step: read_score(self._manager, step) for step in steps}

    def __enter__(self) -> "Checkpoints":
        """Returns itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Waits for the save under way.

        Raises:
          CheckpointError: it failed. Only a warning where another error is on its way.
        """
        try:
            self._manager.close()
        except Exception as error:
            if kind is None:
                raise self._failed(error) from error
            warnings.warn(str(self._failed(error)), stacklevel=2)

    def save(self, snapshot: Snapshot) -> None:
        """Starts to write a checkpoint, after the one before it is on the disk.

        Args:
          snapshot: its arrays must not change any more.

        Raises:
          CheckpointError: this save or the one before it failed (a full disk, say).
        """
        arguments = save_arguments(snapshot, self._fingerprint)
        self._scores[snapshot.step] = rank(snapshot.score)
        try:
            self._manager.save(snapshot.step, args=arguments)
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
        there = saved_steps(self._workdir)
        return CheckpointError(
            f"a checkpoint could not be saved in {self._workdir / FOLDER}: {error}\n"
            f"still there, and continued from by the same command: {there or 'none'}"
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
            snapshot = _read_or_warn(self._manager, step, self._fingerprint)
            if snapshot is not None:
                return snapshot
            self._set_aside(step)
        if steps:
            raise CheckpointError(
                f"none of the checkpoints {steps} of {self._workdir} can be used (they are now in "
                f"{SET_ASIDE}): take another workdir, or put a whole one back"
            )
        return None

    def best(self) -> Snapshot | None:
        """Returns the evaluated checkpoint of the highest score, or ``None`` if there is none.

        One that is not whole is warned about, and the next best is taken.

        Raises:
          CheckpointError: the save under way failed.
        """
        self.wait()
        evaluated = [step for step in self._manager.all_steps() if self._scores[step] > -math.inf]
        for step in sorted(evaluated, key=lambda step: (self._scores[step], step), reverse=True):
            snapshot = _read_or_warn(self._manager, step, self._fingerprint)
            if snapshot is not None:
                return snapshot
        return None

    def _set_aside(self, step: int) -> None:
        multihost_utils.sync_global_devices(f"checkpoint {step} was read by all")
        if jax.process_index() == 0:
            folder = self._workdir / SET_ASIDE
            folder.mkdir(exist_ok=True)
            taken = len(list(folder.iterdir()))
            (self._workdir / FOLDER / str(step)).rename(folder / f"{step}.{taken}")
        multihost_utils.sync_global_devices(f"checkpoint {step} is set aside")
        self._manager.reload()


@dataclasses.dataclass
class _NewestAndBest(checkpoint_managers.PreservationPolicy):
    """Keeps the newest few and the one of the highest score, the newest of equals.

    Orbax's own ``BestN`` wants the scores in a file of the checkpoint that it reads unguarded: one
    broken file, and no checkpoint at all can be read.
    """

    newest: int
    scores: dict[int, float]

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> Sequence[bool]:
        """Returns, for each of orbax's descriptions in the order of steps, whether it is kept."""
        steps = [checkpoint.step for checkpoint in checkpoints]
        kept = set(steps[-self.newest :])
        if steps:
            kept.add(max(steps, key=lambda step: (self.scores[step], step)))
        return [step in kept for step in steps]


def saved_steps(workdir: str | os.PathLike) -> list[int]:
    """Returns the steps of a run's checkpoints, whole or not; none if there is no run."""
    folder = Path(workdir) / FOLDER
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(name) for name in names if name.isdigit())


def load_snapshot(
    workdir: str | os.PathLike, which: Literal["best", "latest"] | int = "best"
) -> Snapshot:
    """Returns a checkpoint of a run that may still be going on; nothing is written or moved.

    Args:
      workdir: the run's folder.
      which: a step, the newest, or the one with the best evaluation (the newest of equals). One
        that is not whole is warned about, and the next best or next newest is taken.

    Raises:
      ValueError: ``workdir`` is no run, or has no such checkpoint.
      CheckpointError: there is one, and it is not whole.
    """
    fingerprint = read_record(workdir).get("fingerprint")
    if fingerprint is None or not (Path(workdir) / FOLDER).is_dir():
        raise ValueError(f"workdir: got {workdir}, wanted the folder of a training run")
    with _open(Path(workdir).absolute(), read_only=True) as manager:
        steps = sorted(manager.all_steps(), reverse=True)
        wanted = [step for step in steps if which in (step, "best", "latest")]
        if which == "best":
            wanted.sort(key=lambda step: read_score(manager, step), reverse=True)
        for step in wanted:
            snapshot = _read_or_warn(manager, step, fingerprint)
            if snapshot is not None:
                return snapshot
    if wanted:
        raise CheckpointError(f"{workdir}: none of the checkpoints {wanted} is whole")
    raise ValueError(f"checkpoint: got {which!r}, wanted one of the steps {steps} of {workdir}")


def _open(workdir: Path, **options: Any) -> ocp.CheckpointManager:
    return ocp.CheckpointManager(
        workdir / FOLDER,
        options=ocp.CheckpointManagerOptions(**options),
        item_names=("state", "hook", "record"),
    )


def _read_or_warn(manager: ocp.CheckpointManager, step: int, fingerprint: str) -> Snapshot | None:
    try:
        return read_snapshot(manager, step, fingerprint)
    except Exception as error:  # a broken file may raise anything
        warnings.warn(f"checkpoint {step} is not used: {error}", stacklevel=3)
        return None
