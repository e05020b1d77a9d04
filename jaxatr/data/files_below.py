"""Recursive listing of the files in a folder."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple


class Unlisted(NamedTuple):
    """A folder that cannot be listed, or a link that cannot be followed.

    Attributes:
      path: its path relative to the root.
      error: the error of the operating system.
    """

    path: PurePosixPath
    error: OSError


def files_below(root: Path) -> list[PurePosixPath]:
    """Returns the paths of all files below a folder, relative to it and sorted.

    Links to targets outside the folder are followed. Links within the folder are skipped, because
    their targets are listed anyway.

    Raises:
      ValueError: the folder does not exist.
      OSError: a folder cannot be listed.
    """
    return list(map(_listed, _walked(root, everything=True)))


def visible_below(root: Path) -> list[PurePosixPath]:
    """Returns :func:`files_below` without hidden files and files in hidden folders."""
    return list(map(_listed, iterate_visible(root)))


def iterate_visible(root: Path) -> Iterator[PurePosixPath | Unlisted]:
    """Yields :func:`visible_below` with only one folder's names in memory at a time.

    A folder that cannot be listed is yielded as an error at its place.

    Raises:
      ValueError: the folder does not exist.
    """
    return _walked(root, everything=False)


def is_hidden(name: str) -> bool:
    """Whether this name marks a hidden file or folder, or one that macOS adds to archives."""
    return name.startswith(".") or name == "__MACOSX"


def _listed(found: PurePosixPath | Unlisted) -> PurePosixPath:
    if isinstance(found, Unlisted):
        raise found.error
    return found


def _walked(root: Path, *, everything: bool) -> Iterator[PurePosixPath | Unlisted]:
    if not root.is_dir():
        raise ValueError(
            f"{root} is a file, wanted a folder" if root.exists() else f"there is no folder {root}"
        )
    top = root.resolve()
    for path, error in _files(top, top, (top,), everything):
        below = PurePosixPath(path.relative_to(top))
        yield Unlisted(below, error) if error else below


def _files(
    top: Path, folder: Path, above: tuple[Path, ...], everything: bool
) -> Iterator[tuple[Path, OSError | None]]:
    """Yields the files below a folder, sorted by the parts of their paths, and those unlisted.

    Args:
      top: the resolved root folder.
      folder: the folder to list, below ``top``.
      above: the resolved paths of the folder and its parents, to detect cycles.
      everything: include hidden files and folders.
    """
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        yield folder, error
        return
    for entry in entries:
        if not everything and is_hidden(entry.name):
            continue
        path = Path(entry.path)
        # Unlike Path.resolve, realpath gives a path for links in a circle too.
        real = Path(os.path.realpath(path)) if entry.is_symlink() else above[-1] / entry.name
        if entry.is_symlink() and real.is_relative_to(top):
            # It is listed at its own place, unless that is hidden, as in git-annex and DVC.
            if everything or not any(map(is_hidden, real.relative_to(top).parts)):
                continue
        try:
            is_file, is_folder = entry.is_file(), entry.is_dir()
        except OSError as error:
            yield path, error
            continue
        if is_file:
            yield path, None
        elif is_folder and real not in above:
            yield from _files(top, path, (*above, real), everything)


def file_states(root: Path, paths: list[PurePosixPath]) -> list:
    """Returns names, sizes and dates of files, a cheap signature that changes with any file."""
    rows = []
    for path in paths:
        status = (root / path).stat()
        # Copying may preserve the modification time, but never the inode's change time.
        rows.append([str(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns])
    return rows
