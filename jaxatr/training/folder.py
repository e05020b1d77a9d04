"""The files of a run's folder: their names, reading and writing."""

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import filelock
import jax

from jaxatr import config as configuration
from jaxatr import files, parallel
from jaxatr.data.class_names import class_name
from jaxatr.files import MissingFileError
from jaxatr.training.repeats import read_repeats
from jaxatr.training.snapshot import Snapshot
from jaxatr.training.state import evaluated_params
from jaxatr.typing import Config, PyTree

EVALUATION = "evaluation.json"
SCORES = "scores.npz"
THUMBNAILS = "thumbnails.npz"
INDEX = "index.npz"
OWN_TEST = "own test"
"""Title of a run's own test data among the sets, which no set can have."""
SETS = "sets"
"""Folder in a run's folder with the evaluations on other sets, each in a folder of its name."""
_LOCK = ".training.lock"
_HOLDER = ".training.json"
_WRITTEN = (("data", "source"), ("open_set", "enrolled"))  # fields of files in the run's folder


def load_config(workdir: str | os.PathLike) -> Config:
    """Reads the configuration that a run was trained with.

    Fields that were added after the run was trained have their defaults. Files that were written
    into the run's folder, such as arrays that it was trained on, are found if it was moved.

    Raises:
      ValueError: ``workdir`` is not a run's folder, its configuration is damaged or was changed, or
        its task cannot be imported.
    """
    path = Path(workdir) / "config.json"
    if not path.is_file():
        if several := read_repeats(workdir):
            listed = ", ".join(several.names)
            raise ValueError(f"{workdir} has several runs: wanted one of them, {listed}")
        raise MissingFileError(f"{workdir} is not a run's folder: it has no {path.name}")
    recorded = files.read_fields(path)
    try:
        config = configuration.completed(recorded)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    for group, name in _WRITTEN:
        own = Path(config.get(group, {}).get(name) or "")
        if own.name and not own.exists():  # the folder was moved
            around = (folder / own.name for folder in path.absolute().parents[:2])  # or its repeats
            config[group][name] = str(next(filter(Path.is_file, around), own))
    return config


def set_folder(workdir: str | os.PathLike, name: str) -> Path:
    """Returns the folder in a run's folder for the evaluation on another set.

    Raises:
      ValueError: the name is not that of a visible folder, or is :data:`OWN_TEST`.
    """
    named = class_name(name)
    if named == OWN_TEST:
        raise ValueError(f"name: got {name!r}, which is the run's own test data among the sets")
    hidden = not named or named.startswith(".")
    if hidden or not named.isprintable() or set(named) & set("/\\:") or len(named.encode()) > 200:
        raise ValueError(
            f"name: got {name!r}, wanted the name of a folder in {Path(workdir) / SETS}: without "
            "'/', '\\' and ':', not beginning with '.', of at most 200 bytes"
        )
    return Path(workdir) / SETS / named


def variables_of(snapshot: Snapshot) -> PyTree:
    """Returns a checkpoint's variables for a network's ``apply``.

    If the run averages its parameters, these are the averages.
    """
    params = evaluated_params(snapshot.state["params"], snapshot.state["opt_state"])
    return {"params": params, **snapshot.state["model_state"]}


@contextlib.contextmanager
def training_alone(workdir: str | os.PathLike) -> Iterator[None]:
    """Keeps other processes from training in a folder, which is created if missing.

    The operating system releases the lock of a process that ends, even if it is killed; on file
    systems without locks, that of a dead process of this host is taken over. The same process may
    enter the context again.

    Raises:
      ValueError: another process is training in it; the message names it. All processes of a run
        raise it.
    """
    folder = Path(workdir)
    refusal, is_new = None, not folder.exists()
    with contextlib.ExitStack() as stack:
        if jax.process_index() == 0:
            folder.mkdir(parents=True, exist_ok=True)
            try:
                lock = stack.enter_context(files.locked(folder / _LOCK, seconds=0.0, again=True))
            except TimeoutError:
                refusal = _refusal(folder)
            else:
                holder = {"host": socket.gethostname(), "process": os.getpid()}
                files.write_fields(folder / _HOLDER, holder)
                stack.callback(_leave, folder, lock, is_new)
        if refusal := parallel.gather_json(refusal)[0]:
            raise ValueError(refusal)
        yield


def _leave(folder: Path, lock: filelock.BaseFileLock, is_new: bool) -> None:
    """Removes what says who is training, as the last context of the folder ends."""
    if lock.lock_counter > 1:
        return
    (folder / _HOLDER).unlink(missing_ok=True)
    if is_new and {path.name for path in folder.iterdir()} <= {_LOCK}:
        (folder / _LOCK).unlink(missing_ok=True)  # it failed before anything was written
        folder.rmdir()


def _refusal(folder: Path) -> str:
    try:
        holder = files.read_fields(folder / _HOLDER)
        who = f"process {holder['process']} on {holder['host']}"
    except (OSError, ValueError):  # it has just begun
        who = "another process"
    return f"{folder}: {who} is training in this folder: wait for its end, or use another workdir"


def write_file(path: Path, write: Callable[[Any], object]) -> None:
    """Writes a file atomically, from process 0 only.

    Args:
      path: path of the file.
      write: writes the content to an open binary file.
    """
    write_files({path: write})


def write_files(writes: Mapping[Path, Callable[[Any], object]]) -> None:
    """Writes files that belong together, from process 0 only.

    All of them are on the disk before the first replaces an earlier one, so that a full disk leaves
    the earlier ones.

    Args:
      writes: what writes the content to an open binary file, by its path. The first one is replaced
        last.
    """
    if jax.process_index():
        return  # every process has the result, only one writes it
    with contextlib.ExitStack() as stack:
        for path, write in writes.items():
            file = stack.enter_context(files.replacing(path))
            write(file)
            file.flush()
            os.fsync(file.fileno())
