"""Recursive listing of the files in a folder."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def files_below(root: Path) -> list[PurePosixPath]:
    """Returns the paths of all files below a folder, relative to it and sorted.

    Links to targets outside the folder are followed. Links within the folder are skipped, because
    their targets are listed anyway.

    Raises:
      ValueError: the folder does not exist.
    """
    return list(_walked(root, everything=True))


def visible_below(root: Path) -> list[PurePosixPath]:
    """Returns :func:`files_below` without hidden files and files in hidden folders."""
    return list(iterate_visible(root))


def iterate_visible(root: Path) -> Iterator[PurePosixPath]:
    """Yields :func:`visible_below` with only one folder's names in memory at a time.

    Raises:
      ValueError: the folder does not exist.
    """
    return _walked(root, everything=False)


def is_hidden(name: str) -> bool:
    """Whether this name marks a hidden file or folder, or one that macOS adds to archives."""
    return name.startswith(".") or name == "__MACOSX"


def _walked(root: Path, *, everything: bool) -> Iterator[PurePosixPath]:
    if not root.is_dir():
        raise ValueError(
            f"{root} is a file, wanted a folder" if root.exists() else f"there is no folder {root}"
        )
    top = root.resolve()
    for path in _files(top, top, (top,), everything):
        yield PurePosixPath(path.relative_to(top))


def _files(top: Path, folder: Path, above: tuple[Path, ...], everything: bool) -> Iterator[Path]:
    """Yields the files below a folder, sorted by the parts of their paths.

    Args:
      top: the resolved root folder.
      folder: the folder to list, below ``top``.
      above: the resolved paths of the folder and its parents, to detect cycles.
      everything: include hidden files and folders.
    """
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if not everything and is_hidden(entry.name):
            continue
        path = Path(entry.path)
        real = path.resolve() if entry.is_symlink() else above[-1] / entry.name
        if entry.is_symlink() and real.is_relative_to(top):
            # It is listed at its own place, unless that is hidden, as in git-annex and DVC.
            if everything or not any(map(is_hidden, real.relative_to(top).parts)):
                continue
        if entry.is_file():
            yield path
        elif entry.is_dir() and real not in above:
            yield from _files(top, path, (*above, real), everything)


def file_states(root: Path, paths: list[PurePosixPath]) -> list:
    """Returns names, sizes and dates of files, a cheap signature that changes with any file."""
    rows = []
    for path in paths:
        status = (root / path).stat()
        # Copying may preserve the modification time, but never the inode's change time.
        rows.append([str(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns])
    return rows
