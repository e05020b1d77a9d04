"""Prepared sets in the data directory: made whole or not at all, and never by two at once.

``<data_dir>/<name>/<signature>/`` holds a set as its source was when the signature was taken, and
``<data_dir>/<name>/current`` names the signature that was last asked for. Older ones stay: another
run may be reading them.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from jaxatr import files

_PARTIAL = ".preparing-"
_CURRENT = "current"


def default_data_dir() -> Path:
    """Returns ``$JAXATR_DATA_DIR``, else ``jaxatr/data`` in the user's cache folder."""
    if chosen := os.environ.get("JAXATR_DATA_DIR"):
        return Path(chosen).expanduser()
    return files.cache_folder() / "data"


def prepared(folder: Path, signature: str, make: Callable[[Path], Path]) -> Path:
    """Returns the folder of the set with this signature, made first if it is not there.

    Args:
      folder: ``<data_dir>/<name>``.
      signature: of the set's source.
      make: writes the set somewhere below the empty folder that it is given, and returns where.
    """
    final = folder / signature
    if not final.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with files.locked(folder / ".lock"):
            if not final.is_dir():  # another process may have made it while this one waited
                _make(final, make)
    if current(folder) != final:
        files.write_text(folder / _CURRENT, signature)
    return final


def _make(final: Path, make: Callable[[Path], Path]) -> None:
    for dead in final.parent.glob(_PARTIAL + "*"):  # of a process that was killed: none is alive
        shutil.rmtree(dead, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=final.parent))
    try:
        os.rename(make(partial), final)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def current(folder: Path) -> Path | None:
    """Returns the set last asked for in ``<data_dir>/<name>``, or None."""
    try:
        signature = (folder / _CURRENT).read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
    named = re.fullmatch(r"[0-9a-f]{16}", signature)  # nothing that leads elsewhere
    return folder / signature if named and (folder / signature).is_dir() else None


def names(data_dir: Path) -> list[str]:
    """Returns the names of the sets prepared in a data directory."""
    return sorted(path.parent.name for path in data_dir.glob(f"*/{_CURRENT}"))
