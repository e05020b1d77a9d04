"""The database of the find step: the fastest choice of each problem, in one file per device.

The package ships ``jaxatr/kernels/tuned/<device>.json``; the user's ``tuned/<device>.json`` in the
cache folder takes precedence. An entry is valid for one version of its solver and of jax.
Unreadable and outdated entries are ignored with a warning, one for each entry of the user's file.
The entries of the shipped file go out of date together, so it gets one warning for each reason.
"""

import json
import os
import re
import warnings
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args

import jax

from jaxatr import files
from jaxatr.kernels.device import Device
from jaxatr.kernels.entries import Entry, entry_from_json, from_compact, to_text
from jaxatr.kernels.solver import Choice, Operation

SHIPPED = Path(__file__).parent / "tuned"
MODE = "JAXATR_FIND"
Mode: TypeAlias = Literal["none", "db", "search", "enforce"]


def mode() -> Mode:
    """Returns the value of the environment variable ``JAXATR_FIND``, by default ``"db"``.

    Raises:
      ValueError: the value is not one of the four modes.
    """
    chosen = os.environ.get(MODE) or "db"
    if chosen not in get_args(Mode):
        raise ValueError(f"{MODE}: got {chosen!r}, wanted one of {', '.join(get_args(Mode))}")
    return cast(Mode, chosen)


def folder() -> Path:
    """Returns the folder of the user's measurements; it need not exist.

    It is ``JAXATR_CACHE`` if that is set, and otherwise the user's cache folder
    (:func:`jaxatr.files.cache_folder`).
    """
    chosen = os.environ.get("JAXATR_CACHE")
    return Path(chosen).expanduser() if chosen else files.cache_folder()


def user_file(device: Device) -> Path:
    """Returns the path of the user's file for a device in :func:`folder`; it need not exist."""
    return folder() / "tuned" / _file_name(device)


def shipped_file(device: Device) -> Path:
    """Returns the path of the file that the package ships for a device; it need not exist."""
    return SHIPPED / _file_name(device)


def _file_name(device: Device) -> str:
    words = re.findall(r"[a-z0-9]+", f"{device.platform} {device.kind}".lower())
    return "-".join(words) + ".json"


def lookup(operation: Operation, problem: Any, device: Device) -> Choice | None:
    """Returns the recorded choice for a canonical problem, or ``None`` if none can be used."""
    own, shipped = user_file(device), shipped_file(device)
    for path in (own, shipped):
        entry = entries(path).get(problem.key)
        if entry is None:
            continue
        why = operation.refusal(problem, entry.choice, device) or outdated(operation, entry)
        if not why:
            return entry.choice
        if path == own:
            _warn(f"{path}: the entry {problem.key!r} is not used: {why}")
        elif entry.jax_version == jax.__version__:  # `jaxatr tune show` lists others, as expected
            _warn_of_shipped(path, why)
    return None


@lru_cache(maxsize=64)
def _warn_of_shipped(path: Path, why: str) -> None:
    """Warns once per process for each reason."""
    _warn(
        f"the kernels follow general rules, because the choices shipped for this device ({path}) "
        f"are not used: {why}"
    )


def known(device: Device) -> bool:
    """Returns whether the database has any entry for a device."""
    return any(entries(path) for path in (user_file(device), shipped_file(device)))


def outdated(operation: Operation, entry: Entry) -> str:
    """Returns why an entry is invalid for every problem, or ``""`` if it may be valid.

    The configuration is not checked, because that needs the problem.
    """
    name = entry.choice.algorithm
    if name not in operation.solvers:
        return f"the algorithm {name!r} does not exist"
    version = operation.solvers[name].version
    if entry.solver_version != version:
        return f"it is for version {entry.solver_version} of {name!r}, this is version {version}"
    if entry.jax_version != jax.__version__:
        return f"it was measured with jax {entry.jax_version}, this is jax {jax.__version__}"
    return ""


def entries(path: Path) -> dict[str, Entry]:
    """Reads the entries of a file by the keys of their problems; none if the file does not exist.

    Malformed entries are skipped with a warning, and so is a whole file that cannot be read.
    """
    try:
        return _read(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        _warn(f"{path} cannot be read and is not used: {error}")
        return {}


def _read(path: Path) -> dict[str, Entry]:
    """Reads a file again only if its time, size or inode has changed.

    Raises:
      OSError: the file does not exist or cannot be read.
    """
    status = path.stat()
    return _parsed(path, status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(maxsize=8)  # two files for each of a few devices; errors of reading are not kept
def _parsed(path: Path, *state: int) -> dict[str, Entry]:
    del state
    text = path.read_bytes()
    try:
        content = json.loads(text)
        if content["format"] == 2:
            return from_compact(content)
        if content["format"] != 1:
            raise ValueError(f"format: got {content['format']!r}, wanted 1 or 2")
        items = dict(content["entries"]).items()
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        _warn(f"{path} cannot be read as a database of kernels and is not used: {error!r}")
        return {}
    valid = {}
    for key, value in items:
        try:
            valid[key] = entry_from_json(value)
        except ValueError as error:
            _warn(f"{path}: the entry {key!r} is malformed and not used: {error}")
    return valid


def store(device: Device, new: Mapping[str, Entry]) -> None:
    """Adds entries to the user's file, replacing older ones of the same problems.

    A lock makes concurrent writers take turns, so that no entry is lost. A malformed file is kept
    under the suffix ``.broken``. If the file cannot be written, a warning is issued.
    """
    path = user_file(device)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.locked(path.with_suffix(".lock")):
            known: dict[str, Entry] = {}
            if path.exists():
                known = _read(path)
                if not known:
                    path.replace(path.with_suffix(".broken"))
            files.write_text(path, to_text(device, known | dict(new)))
    except OSError as error:
        _warn(f"the timings cannot be saved: {error}")


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=3)
