"""The checkpoints of a run, written asynchronously by orbax and verified when restored.

Restoring uses the latest intact checkpoint. Truncated or altered checkpoints and those of another
run are skipped with a warning. An interrupted save leaves a temporary folder, never a checkpoint.
"""

import contextlib
import dataclasses
import errno
import functools
import logging
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jax

from jaxatr.jax_internals import multihost_utils
from jaxatr.training.record import read_record
from jaxatr.training.snapshot import Snapshot, rank, read_score, read_snapshot, save_arguments

if TYPE_CHECKING:
    import orbax.checkpoint as ocp

FOLDER = "checkpoints"
SET_ASIDE = "checkpoints_set_aside"

_Hook = Callable[[Any], object]  # of sys.unraisablehook


class CheckpointError(RuntimeError):
    """A checkpoint could not be written, or none of the existing checkpoints is usable."""


class Checkpoints:
    """The checkpoints under ``workdir/checkpoints``, for the run that writes them.

    A context manager: on exit, it waits for the pending save.
    """

    def __init__(self, workdir: str | os.PathLike, *, fingerprint: str, keep: int):
        """Creates the folder if there is none.

        The first use removes the leftovers of an interrupted save.

        Args:
          workdir: the run's folder.
          fingerprint: identifies the run in its checkpoints.
          keep: number of latest checkpoints to keep, in addition to the best.
        """
        if keep < 1:
            raise ValueError(f"keep: got {keep}, wanted at least 1")
        self._workdir = Path(workdir).absolute()
        self._fingerprint, self._keep = fingerprint, keep
        self._scores: dict[int, float] = {}
        (self._workdir / FOLDER).mkdir(parents=True, exist_ok=True)

    @functools.cached_property
    def _manager(self) -> "ocp.CheckpointManager":
        """Orbax's manager, whose import takes a while: a new run needs it for its first save."""
        manager = _open(
            self._workdir,
            preservation_policy=_NewestAndBest(self._keep, self._scores),
            cleanup_tmp_directories=True,
        )
        self._scores |= {step: read_score(manager, step) for step in manager.all_steps()}
        return manager

    def __enter__(self) -> "Checkpoints":
        """Returns itself."""
        hook = self._hook = sys.unraisablehook
        sys.unraisablehook = _without_closed_loops(hook)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Waits for the pending save.

        Raises:
          CheckpointError: the save failed. Only a warning if another error is being raised.
        """
        try:
            if "_manager" in vars(self):
                self._manager.close()
        except Exception as error:
            if kind is None:
                raise self._failed(error) from error
            warnings.warn(str(self._failed(error)), stacklevel=2)
        finally:
            sys.unraisablehook = self._hook

    def save(self, snapshot: Snapshot) -> None:
        """Starts writing a checkpoint, once the previous one is on disk.

        Args:
          snapshot: content of the checkpoint; its arrays must not change afterwards.

        Raises:
          CheckpointError: this save or the previous one failed, for example because the disk is
            full.
        """
        arguments = save_arguments(snapshot, self._fingerprint)
        self._scores[snapshot.step] = rank(snapshot.score)
        try:
            self._manager.save(snapshot.step, args=arguments)
        except Exception as error:
            raise self._failed(error) from error

    def wait(self) -> None:
        """Waits until everything is on disk.

        Raises:
          CheckpointError: the pending save failed.
        """
        try:
            self._manager.wait_until_finished()
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> CheckpointError:
        steps = saved_steps(self._workdir)
        full = os.strerror(errno.ENOSPC)  # tensorstore's message has each array, path and source
        reason = full if full in str(error) else " ".join(str(error).split())
        return CheckpointError(
            f"a checkpoint could not be saved in {self._workdir / FOLDER}: {reason}; existing "
            f"checkpoints, from which the same command continues: {steps or 'none'}"
        )

    def restore(self) -> Snapshot | None:
        """Returns the latest intact checkpoint of this run, or ``None`` if there are none.

        Checkpoints that are corrupt or belong to another run cause a warning and are moved to
        ``workdir/checkpoints_set_aside``, so that their steps can be saved again.

        Raises:
          CheckpointError: there are checkpoints but none is usable, or there were, and all are in
            that folder.
        """
        steps = saved_steps(self._workdir) and sorted(self._manager.all_steps(), reverse=True)
        for step in steps:
            snapshot = _read_or_warn(self._manager, step, self._fingerprint)
            if snapshot is not None:
                return snapshot
            self._set_aside(step)
        lost = [int(path.stem) for path in (self._workdir / SET_ASIDE).glob("[0-9]*.*")]
        if lost:
            raise CheckpointError(
                f"none of the checkpoints {sorted(lost, reverse=True)} of {self._workdir} is "
                f"usable (they are now in {SET_ASIDE}): use another workdir, restore an intact "
                f"checkpoint, or remove {SET_ASIDE} to begin anew"
            )
        return None

    def best(self) -> Snapshot | None:
        """Returns the evaluated checkpoint with the highest score, or ``None`` if there is none.

        Corrupt checkpoints are skipped with a warning.

        Raises:
          CheckpointError: the pending save failed.
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
class _NewestAndBest:
    """Orbax's policy of keeping the latest few checkpoints and the best, the latest if tied.

    Orbax's ``BestN`` reads scores from a file of each checkpoint without handling errors: a single
    corrupt file would make all checkpoints unreadable.
    """

    newest: int
    scores: dict[int, float]

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> Sequence[bool]:
        """Returns whether to keep each checkpoint; ``checkpoints`` are in the order of steps."""
        steps = [checkpoint.step for checkpoint in checkpoints]
        kept = set(steps[-self.newest :])
        if steps:
            kept.add(max(steps, key=lambda step: (self.scores[step], step)))
        return [step in kept for step in steps]


def saved_steps(workdir: str | os.PathLike) -> list[int]:
    """Returns the steps of a run's checkpoints, intact or not; empty if there is no run."""
    folder = Path(workdir) / FOLDER
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(name) for name in names if name.isdigit())


def load_snapshot(
    workdir: str | os.PathLike, which: Literal["best", "latest"] | int = "best"
) -> Snapshot:
    """Reads a checkpoint of a run, which may still be training, without changing any files.

    Args:
      workdir: the run's folder.
      which: a step, ``"latest"``, or ``"best"`` for the best evaluation (the latest if tied).
        Corrupt checkpoints are skipped with a warning, in favour of the next best or next latest.

    Raises:
      ValueError: ``workdir`` is not a run's folder, or has no such checkpoint.
      CheckpointError: such checkpoints exist but all are corrupt.
    """
    fingerprint = read_record(workdir).get("fingerprint")
    if fingerprint is None:
        raise ValueError(f"workdir: got {workdir}, wanted the folder of a training run")
    if not (before := saved_steps(workdir)):
        raise ValueError(
            f"{workdir}: its training has saved no checkpoint yet; jaxatr train "
            f"--workdir={workdir} continues it"
        )
    with _quiet():
        opened = _open(Path(workdir).absolute(), read_only=True)
    with opened as manager:
        steps = sorted(manager.all_steps(), reverse=True)
        wanted = [step for step in steps if which in (step, "best", "latest")]
        if which == "best":
            wanted.sort(key=lambda step: read_score(manager, step), reverse=True)
        for step in wanted:
            try:
                return read_snapshot(manager, step, fingerprint)
            except Exception as error:  # a corrupt file may raise any exception
                if saved_steps(workdir) != before:  # the training has just replaced it
                    return load_snapshot(workdir, which)
                _warn_unused(step, error)
    if wanted:
        raise CheckpointError(f"{workdir}: all of the checkpoints {wanted} are corrupt")
    raise ValueError(f"checkpoint: got {which!r}, wanted one of the steps {steps} of {workdir}")


def _open(workdir: Path, **options: Any) -> "ocp.CheckpointManager":
    import orbax.checkpoint as ocp

    return ocp.CheckpointManager(
        workdir / FOLDER,
        options=ocp.CheckpointManagerOptions(**options),
        item_names=("state", "hook", "record"),
    )


def _without_closed_loops(hook: _Hook) -> _Hook:
    """Drops the tracebacks of arrays that were still being written when the first one failed.

    Orbax raises the first one's error, and closes the event loop that the others want to tell.
    """

    def print_others(raised: Any) -> None:
        error = raised.exc_value
        if not (isinstance(error, RuntimeError) and str(error) == "Event loop is closed"):
            hook(raised)

    return print_others


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Drops Orbax's warnings that a folder opened for reading is not written to."""

    def is_error(record: logging.LogRecord) -> bool:
        return record.levelno > logging.WARNING

    logger = logging.getLogger("absl")
    logger.addFilter(is_error)
    try:
        yield
    finally:
        logger.removeFilter(is_error)


def _read_or_warn(manager: "ocp.CheckpointManager", step: int, fingerprint: str) -> Snapshot | None:
    try:
        return read_snapshot(manager, step, fingerprint)
    except Exception as error:  # a corrupt file may raise any exception
        _warn_unused(step, error)
        return None


def _warn_unused(step: int, error: Exception) -> None:
    warnings.warn(f"checkpoint {step} is not used: {error}", stacklevel=3)
