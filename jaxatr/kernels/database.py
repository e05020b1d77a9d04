"""The results of the find step, kept on disk for each kind of device.

A shipped file, ``jaxatr/kernels/tuned/<device>.json``, and the user's own, ``tuned/<device>.json``
in the cache folder, which wins. An entry holds for one version of its solver and of jax. What
cannot be read or no longer holds is named in a warning and not used: an entry of the user's by
itself, of the shipped file, all of whose entries age together, the file once.
"""

import json
import os
import re
import warnings
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, cast

import jax

from jaxatr import files
from jaxatr.kernels.device import Device
from jaxatr.kernels.entries import Entry, entry_from_json, from_compact, to_text
from jaxatr.kernels.solver import Choice, Operation

SHIPPED = Path(__file__).parent / "tuned"
MODE = "JAXATR_FIND"
_MODES = ("none", "db", "search", "enforce")


def mode() -> Literal["none", "db", "search", "enforce"]:
    """Returns the value of the environment variable ``JAXATR_FIND``, by default ``"db"``.

    Raises:
      ValueError: it says something else than the four modes.
    """
    chosen = os.environ.get(MODE) or "db"
    if chosen not in _MODES:
        raise ValueError(f"{MODE}: got {chosen!r}, wanted one of {', '.join(_MODES)}")
    return cast(Literal["none", "db", "search", "enforce"], chosen)


def user_file(device: Device) -> Path:
    """Returns the user's file for a device, whether it is there or not.

    It is in the folder that ``JAXATR_CACHE`` names, else in the user's cache folder
    (:func:`jaxatr.files.cache_folder`).
    """
    chosen = os.environ.get("JAXATR_CACHE")
    folder = Path(chosen).expanduser() if chosen else files.cache_folder()
    return folder / "tuned" / _file_name(device)


def shipped_file(device: Device) -> Path:
    """Returns the file for a device that comes with the package, whether it is there or not."""
    return SHIPPED / _file_name(device)


def _file_name(device: Device) -> str:
    words = re.findall(r"[a-z0-9]+", f"{device.platform} {device.kind}".lower())
    return "-".join(words) + ".json"


def lookup(operation: Operation, problem: Any, device: Device) -> Choice | None:
    """Returns the recorded choice for a canonical problem, ``None`` where none can be used."""
    for path in (user_file(device), shipped_file(device)):
        entry = entries(path).get(problem.key)
        if entry is None:
            continue
        why = _stale(operation, problem, entry, device)
        if not why:
            return entry.choice
        if path == user_file(device):
            _warn(f"{path}: the entry {problem.key!r} is not used: {why}")
        else:
            _warn_of_shipped(path, why)
    return None


@lru_cache(maxsize=64)
def _warn_of_shipped(path: Path, why: str) -> None:
    """Warns once for each reason, in a process."""
    _warn(f"{path}: what came with the package for this device is not used: {why}")


def known(device: Device) -> bool:
    """Says whether anything at all is recorded for a device."""
    return any(entries(path) for path in (user_file(device), shipped_file(device)))


def _stale(operation: Operation, problem: Any, entry: Entry, device: Device) -> str:
    return operation.refusal(problem, entry.choice, device) or outdated(operation, entry)


def outdated(operation: Operation, entry: Entry) -> str:
    """Returns why an entry does not hold for any problem (any more), ``""`` if it may.

    Whether its algorithm still has its configuration, only a problem can tell.
    """
    name = entry.choice.algorithm
    if name not in operation.solvers:
        return f"there is no algorithm {name!r} (any more)"
    version = operation.solvers[name].version
    if entry.solver_version != version:
        return f"it is of version {entry.solver_version} of {name!r}, this is version {version}"
    if entry.jax_version != jax.__version__:
        return f"it was measured with jax {entry.jax_version}, this is {jax.__version__}"
    return ""


def entries(path: Path) -> dict[str, Entry]:
    """Returns the entries of a file by the keys of their problems; none if there is no such file.

    What is broken in it is left out, with a warning that names it.
    """
    try:
        status = path.stat()
    except OSError:
        return {}
    return _read(path, status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(maxsize=8)  # the two files of a device, and a few devices
def _read(path: Path, *state: int) -> dict[str, Entry]:
    """Reads a file once for each state that it is in."""
    del state
    try:
        content = json.loads(path.read_bytes())
        if content["format"] == 2:
            return from_compact(content)
        if content["format"] != 1:
            raise ValueError(f"format: got {content['format']!r}, wanted 1 or 2")
        items = dict(content["entries"]).items()
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        _warn(f"{path} is no record of kernels that can be read ({error!r}): it is not used")
        return {}
    found = {}
    for key, value in items:
        try:
            found[key] = entry_from_json(value)
        except ValueError as error:
            _warn(f"{path}: the entry {key!r} is broken and not used: {error}")
    return found


def store(device: Device, found: Mapping[str, Entry]) -> None:
    """Adds entries to the user's file, in place of older ones of the same problems.

    Writers at the same time wait for each other, and none loses what another wrote. A file that
    cannot be read is kept beside, as ``.broken``. Where nothing can be written, a warning says so.
    """
    path = user_file(device)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.locked(path.with_suffix(".lock")):
            known: dict[str, Entry] = {}
            if path.exists():
                path.open("rb").close()  # another user's, that may not be read, is not broken
                known = entries(path)
                if not known:
                    path.replace(path.with_suffix(".broken"))
            files.write_text(path, to_text(device, known | dict(found)))
    except OSError as error:
        _warn(f"what was measured is not kept: {error}")


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=3)
