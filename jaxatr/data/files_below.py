"""The files below a folder that a user names."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def files_below(root: Path) -> list[PurePosixPath]:
    """Returns the paths of all files below a folder, relative to it and sorted.

    Links that lead out of the folder are followed. The others are passed over: what they lead to is
    found at its own place.

    Raises:
      ValueError: there is no such folder.
    """
    return list(_walked(root, everything=True))


def visible_below(root: Path) -> list[PurePosixPath]:
    """Returns :func:`files_below` without hidden files, and those in hidden folders."""
    return list(iterate_visible(root))


def iterate_visible(root: Path) -> Iterator[PurePosixPath]:
    """Yields :func:`visible_below`; no more is in memory than the names of one folder.

    Raises:
      ValueError: there is no such folder.
    """
    return _walked(root, everything=False)


def is_hidden(name: str) -> bool:
    """Whether a file or folder of this name is none of a user's own making."""
    return name.startswith(".") or name == "__MACOSX"


def _walked(root: Path, *, everything: bool) -> Iterator[PurePosixPath]:
    if not root.is_dir():
        raise ValueError(
            f"{root} is a file, and a folder is wanted"
            if root.exists()
            else f"there is no folder {root}"
        )
    top = root.resolve()
    for path in _files(top, top, (top,), everything):
        yield PurePosixPath(path.relative_to(top))


def _files(top: Path, folder: Path, above: tuple[Path, ...], everything: bool) -> Iterator[Path]:
    """Yields the files below a folder, in the order of their paths' parts.

    Args:
      top: the data folder.
      folder: below it.
      above: the folders above and itself, as they are without links.
      everything: hidden files and folders too.
    """
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if not everything and is_hidden(entry.name):
            continue
        path = Path(entry.path)
        real = path.resolve() if entry.is_symlink() else above[-1] / entry.name
        if entry.is_symlink() and real.is_relative_to(top):
            continue
        if entry.is_file():
            yield path
        elif entry.is_dir() and real not in above:
            yield from _files(top, path, (*above, real), everything)


def file_states(root: Path, paths: list[PurePosixPath]) -> list:
    """Returns names, sizes and dates of files: cheap, and changed when one of them changes."""
    rows = []
    for path in paths:
        status = (root / path).stat()
        # Copying may set the date of writing back; nothing sets that of the inode.
        rows.append([str(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns])
    return rows
