"""Archives taken apart so that nothing in them can reach outside the folder they go to."""

import contextlib
import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from jaxatr.data.extras import extra

_ZSTANDARD = (".tar.zst", ".tzst")
_TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
SUFFIXES = (*_TAR, *_ZSTANDARD, ".zip")


def is_archive(path: Path) -> bool:
    """Whether the file's name is an archive's."""
    return path.name.lower().endswith(SUFFIXES)


def extract(archive: Path, directory: Path) -> None:
    """Writes an archive's files below ``directory``, as plain files and folders only.

    Raises:
      ValueError: it is damaged, or holds a link, a device, or a path that leaves the folder.
      ImportError: it is packed with Zstandard, and the extra ``zstd`` is not installed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    members = _zip_members if archive.name.lower().endswith(".zip") else _tar_members
    errors: tuple[type[Exception], ...] = (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError)
    errors = (*errors, lzma.LZMAError, zlib.error)
    if archive.name.lower().endswith(_ZSTANDARD):
        zstandard = extra("zstandard", "zstd", f"{archive}: a Zstandard archive")
        errors = (*errors, zstandard.ZstdError)
    try:
        for name, reader in members(archive):
            path = PurePosixPath(name.replace("\\", "/"))
            if path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
                raise ValueError(f"{archive}: the path {name!r} in it leaves its folder")
            target = directory.joinpath(*path.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(reader()) as source, open(target, "wb") as file:
                shutil.copyfileobj(source, file)
    except errors as error:
        raise ValueError(f"{archive}: not a readable archive ({error})") from error


def opened(path: Path, scratch: Path) -> Path:
    """Returns a folder as it is, and an archive's files as a folder.

    Args:
      path: of a folder or an archive.
      scratch: an empty or missing folder, where an archive is unpacked.

    Raises:
      As :func:`extract`.
    """
    if not path.is_file():
        return path
    extract(path, scratch)
    return scratch


def _tar_members(archive: Path) -> Iterator[tuple[str, Callable[[], IO[bytes]]]]:
    with _opened(archive) as tar:
        for member in tar:
            if member.isdir():
                continue
            if not member.isfile():
                raise ValueError(f"{archive}: {member.name!r} in it is a link or a device")
            yield member.name, lambda member=member: tar.extractfile(member)  # type: ignore


@contextlib.contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile]:
    if not archive.name.lower().endswith(_ZSTANDARD):
        with tarfile.open(archive) as tar:
            yield tar
        return
    zstandard = extra("zstandard", "zstd", f"{archive}: a Zstandard archive")
    with (
        open(archive, "rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as stream,
        tarfile.open(fileobj=stream, mode="r|") as tar,  # members are read in their order
    ):
        yield tar


def _zip_members(archive: Path) -> Iterator[tuple[str, Callable[[], IO[bytes]]]]:
    with zipfile.ZipFile(archive) as file:
        for member in file.infolist():
            if member.is_dir():
                continue
            # The upper half of the attributes is the Unix mode; 0o12 is a symbolic link.
            if member.external_attr >> 28 == 0o12:
                raise ValueError(f"{archive}: {member.filename!r} in it is a link")
            yield member.filename, lambda member=member: file.open(member)
