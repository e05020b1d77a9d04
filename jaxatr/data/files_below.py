"""Recursive listing of the files in a folder."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from jaxatr.data.reasons import Reasons

NOWHERE = "links to nothing"
_AGAIN = "folders that are read at another path"
_DEVICE = "devices, pipes and sockets"


class Below(NamedTuple):
    """A path below a folder.

    Attributes:
      path: relative to the folder.
      passed: the reason why there is no file to read, a phrase that can follow a number; empty for
        a file.
      error: the error of the operating system about a folder that cannot be listed.
    """

    path: PurePosixPath
    passed: str = ""
    error: OSError | None = None


def files_below(root: Path) -> list[PurePosixPath]:
    """Returns the paths of all files below a folder, relative to it and sorted.

    Each file in the folder is listed once: links to targets outside the folder are followed, others
    are skipped. Links that lead nowhere are skipped too.

    Raises:
      ValueError: the folder does not exist.
      OSError: a folder cannot be listed.
    """
    return [one.path for one in map(_listed, _walked(root, everything=True)) if not one.passed]


def add_dead_links(root: Path, left_out: Reasons) -> None:
    """Counts the links to nothing among the files of :func:`files_below`."""
    for one in _walked(root, everything=True):
        if one.passed == NOWHERE:
            left_out.add(one.passed, str(one.path))


def iterate_visible(root: Path) -> Iterator[Below]:
    """Yields the files below a folder, sorted, without hidden ones and those in hidden folders.

    Links to files and folders are followed. Each folder is read once, even if several links lead to
    it or a link leads to a folder above: at its own place if it is below ``root``, else at the
    first of its paths. Links that are skipped for this reason, and links to nothing, are yielded
    with the reason. Only the names in one folder and the folders of links are in memory at a time.

    A folder that cannot be listed is yielded as an error at its place.

    Raises:
      ValueError: the folder does not exist.
    """
    return _walked(root, everything=False)


def is_hidden(name: str) -> bool:
    """Whether this name marks a hidden file or folder, or one that macOS adds to archives."""
    return name.startswith(".") or name == "__MACOSX"


def as_utf8(name: str) -> str:
    r"""Escapes the bytes of a file's name that are not UTF-8, which cannot be stored as text.

    >>> as_utf8(b"caf\xe9.png".decode("utf-8", "surrogateescape"))
    'caf\\udce9.png'
    """
    return name.encode("utf-8", "backslashreplace").decode()


def _listed(found: Below) -> Below:
    if found.error is not None:
        raise found.error
    return found


def _walked(root: Path, *, everything: bool) -> Iterator[Below]:
    if not root.is_dir():
        raise ValueError(
            f"{root} is a file, wanted a folder" if root.exists() else f"there is no folder {root}"
        )
    top = root.resolve()
    yield from _Walk(top, everything).below(top, top)


class _Walk:
    """A walk through a folder and the folders that its links lead to."""

    def __init__(self, top: Path, everything: bool):
        self._top, self._everything = top, everything
        self._linked: set[Path] = set()  # folders outside of ``top`` that were reached by links

    def below(self, folder: Path, real: Path) -> Iterator[Below]:
        """Yields what is below a folder, sorted by the parts of the paths.

        Args:
          folder: the folder's path from the top.
          real: its path without links.
        """
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            yield Below(PurePosixPath(folder.relative_to(self._top)), error=error)
            return
        for entry in entries:
            if not self._everything and is_hidden(entry.name):
                continue
            path, is_link = folder / entry.name, entry.is_symlink()
            target = Path(os.path.realpath(path)) if is_link else real / entry.name
            below = PurePosixPath(path.relative_to(self._top))
            # entry.is_file() raises an error for a link that leads back to itself.
            if os.path.isfile(path) if is_link else entry.is_file():
                if not (self._everything and is_link and self._has(target)):
                    yield Below(below)
            elif not (os.path.isdir(path) if is_link else entry.is_dir()):
                yield Below(below, NOWHERE if is_link else _DEVICE)
            elif path == target:
                yield from self.below(path, target)
            elif self._has(target) or target in self._linked:
                yield Below(below, _AGAIN)
            else:
                self._linked.add(target)
                yield from self.below(path, target)

    def _has(self, target: Path) -> bool:
        """Whether a link's target is also read at its own place."""
        if not target.is_relative_to(self._top):
            return False
        # Not in a hidden folder, where git-annex and DVC keep the contents.
        return self._everything or not any(map(is_hidden, target.relative_to(self._top).parts))


def file_states(root: Path, paths: list[PurePosixPath]) -> list:
    """Returns names, sizes and dates of files, a cheap signature that changes with any file."""
    rows = []
    for path in paths:
        status = (root / path).stat()
        # Copying may preserve the modification time, but never the inode's change time.
        rows.append([str(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns])
    return rows
