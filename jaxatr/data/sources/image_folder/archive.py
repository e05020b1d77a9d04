"""Archives taken apart so that nothing in them can reach outside the folder they go to."""

import contextlib
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

SUFFIXES = (".tar.gz", ".tgz", ".tar", ".zip")


def is_archive(path: Path) -> bool:
    """Whether the file's name is an archive's."""
    return path.name.lower().endswith(SUFFIXES)


def extract(archive: Path, directory: Path) -> None:
    """Writes an archive's files below ``directory``, as plain files and folders only.

    Raises:
      ValueError: it is damaged, or holds a link, a device, or a path that leaves the folder.
    """
    directory.mkdir(parents=True, exist_ok=True)
    members = _zip_members if archive.name.lower().endswith(".zip") else _tar_members
    try:
        for name, reader in members(archive):
            path = PurePosixPath(name.replace("\\", "/"))
            if path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
                raise ValueError(f"{archive}: the path {name!r} in it leaves its folder")
            target = directory.joinpath(*path.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(reader()) as source, open(target, "wb") as file:
                shutil.copyfileobj(source, file)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise ValueError(f"{archive}: not a readable archive ({error})") from error


def _tar_members(archive: Path) -> Iterator[tuple[str, Callable[[], IO[bytes]]]]:
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isdir():
                continue
            if not member.isfile():
                raise ValueError(f"{archive}: {member.name!r} in it is a link or a device")
            yield member.name, lambda member=member: tar.extractfile(member)  # type: ignore


def _zip_members(archive: Path) -> Iterator[tuple[str, Callable[[], IO[bytes]]]]:
    with zipfile.ZipFile(archive) as file:
        for member in file.infolist():
            if member.is_dir():
                continue
            # The upper half of the attributes is the Unix mode; 0o12 is a symbolic link.
            if member.external_attr >> 28 == 0o12:
                raise ValueError(f"{archive}: {member.filename!r} in it is a link")
            yield member.filename, lambda member=member: file.open(member)
