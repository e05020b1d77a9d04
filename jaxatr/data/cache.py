"""Cache of prepared data sets: each is written atomically, by one process at a time.

``<data_dir>/<name>/<signature>/`` holds the set prepared from the source with that signature, and
``<data_dir>/<name>/current`` names the signature requested last. Older sets are kept because
another run may be reading them.
"""

import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

from jaxatr import files

_PARTIAL = ".preparing-"
_CURRENT = "current"
_LONGEST = 6 * 3600.0  # seconds that another process may take to prepare a set


def default_data_dir() -> Path:
    """Returns ``$JAXATR_DATA_DIR``, else ``jaxatr/data`` in the user's cache folder."""
    if chosen := os.environ.get("JAXATR_DATA_DIR"):
        return Path(chosen).expanduser()
    return files.cache_folder() / "data"


def prepared(folder: Path, signature: str, make: Callable[[Path], Path]) -> Path:
    """Returns the folder of the set with this signature, preparing it first if it is missing.

    Args:
      folder: ``<data_dir>/<name>``.
      signature: signature of the set's source.
      make: writes the set below the empty folder passed to it, and returns where.
    """
    final = folder / signature
    if not final.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with files.locked(folder / ".lock", seconds=_LONGEST):
            if not final.is_dir():  # another process may have made it while this one waited
                _make(final, make)
    if current(folder) != final:
        try:
            files.write_text(folder / _CURRENT, signature)
        except PermissionError as error:  # a folder that others write: the set itself is there
            warnings.warn(
                f"{error}: the set {signature} is used, but {folder.name!r} without a source and "
                "options stays the set that was last requested by who may write there",
                stacklevel=2,
            )
    return final


def _make(final: Path, make: Callable[[Path], Path]) -> None:
    for dead in final.parent.glob(_PARTIAL + "*"):  # left by killed processes: the lock is held
        shutil.rmtree(dead, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=final.parent))
    try:
        os.rename(make(partial), final)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def current(folder: Path) -> Path | None:
    """Returns the folder of the set requested last in ``<data_dir>/<name>``, or None."""
    try:
        signature = (folder / _CURRENT).read_text()
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
        return None
    named = re.fullmatch(r"[0-9a-f]{16}", signature)  # never a path out of the folder
    return folder / signature if named and (folder / signature).is_dir() else None


def names(data_dir: Path) -> list[str]:
    """Returns the names of the sets prepared in a data directory."""
    return sorted(path.parent.name for path in data_dir.glob(f"*/{_CURRENT}"))
