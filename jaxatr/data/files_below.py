"""The files below a folder that a user names."""

import os
from pathlib import Path, PurePosixPath


def files_below(root: Path) -> list[PurePosixPath]:
    """Returns the paths of all files below a folder, relative to it and sorted.

    Links are passed over: what they lead to inside of the folder is found at its own place.

    Raises:
      ValueError: there is no such folder, or a link leads out of it.
    """
    if not root.is_dir():
        raise ValueError(f"there is no folder {root}")
    top, found = root.resolve(), []
    for folder, folders, names in os.walk(top):
        for name in folders + names:
            path = Path(folder, name)
            if path.is_symlink():
                if not path.resolve().is_relative_to(top):
                    raise ValueError(f"{path} is a link that leads out of the data folder")
            elif path.is_file():
                found.append(PurePosixPath(path.relative_to(top)))
    return sorted(found)


def file_states(root: Path, paths: list[PurePosixPath]) -> list:
    """Returns names, sizes and dates of files: cheap, and changed when one of them changes."""
    rows = []
    for path in paths:
        status = (root / path).stat()
        # Copying may set the date of writing back; nothing sets that of the inode.
        rows.append([str(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns])
    return rows
