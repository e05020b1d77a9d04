"""Extraction of archives that cannot write outside the target folder."""

import contextlib
import io
import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import IO, NamedTuple

from jaxatr.data.extras import extra

_ZSTANDARD = (".tar.zst", ".tzst")
_TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
SUFFIXES = (*_TAR, *_ZSTANDARD, ".zip")
_OTHERS = (".7z", ".rar", ".gz", ".bz2", ".xz", ".zst", ".lz4", ".cab", ".iso")


def is_archive(path: Path) -> bool:
    """Whether a file's name has an archive suffix."""
    return path.name.lower().endswith(SUFFIXES)


def check_kind(path: Path) -> None:
    """Checks that a file is not an archive of a kind that cannot be read.

    Raises:
      ValueError: its name says that it is; the message lists the kinds that can be read.
    """
    if not is_archive(path) and path.suffix.lower() in _OTHERS:
        wanted = ", ".join(SUFFIXES)
        raise ValueError(f"{path}: archives of this kind cannot be read, wanted one of {wanted}")


class Member(NamedTuple):
    """A file in an archive.

    Attributes:
      name: the name as written in the archive.
      path: the name as a relative path.
      open: opens the content; call it before advancing to the next member.
      place: offset and length of the content in the archive file; None if compressed or sparse.
    """

    name: str
    path: PurePosixPath
    open: Callable[[], IO[bytes]]
    place: tuple[int, int] | None = None


def extract(archive: Path, directory: Path) -> None:
    """Extracts an archive's files below ``directory``, as plain files and folders only.

    Raises:
      ValueError: the archive is damaged, or holds a link, a device or a path that leaves the
        folder.
      ImportError: the archive is compressed with Zstandard and the extra ``zstd`` is not installed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with reading(archive):
        for member in members(archive):
            target = directory.joinpath(*member.path.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(member.open()) as source, open(target, "wb") as file:
                shutil.copyfileobj(source, file)


@contextlib.contextmanager
def reading(archive: Path) -> Iterator[None]:
    """Turns the errors raised while reading a damaged archive into one that names the archive.

    Raises:
      ValueError: the archive is damaged.
      ImportError: the archive is compressed with Zstandard and the extra ``zstd`` is not installed.
    """
    errors: tuple[type[Exception], ...] = (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError)
    errors = (*errors, lzma.LZMAError, zlib.error)
    if archive.name.lower().endswith(_ZSTANDARD):
        errors = (*errors, _zstandard(archive).ZstdError)
    if archive.name.lower().endswith(".zip"):
        errors = (*errors, RuntimeError)  # encrypted, or an unsupported kind of compression
    try:
        yield
    except errors as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the operating system, such as a full disk
        raise ValueError(f"{archive}: not a readable archive ({error})") from error


def members(archive: Path) -> Iterator[Member]:
    """Yields an archive's files in stored order; use it within :func:`reading`.

    Raises:
      ValueError: the archive holds a link, a device, or a path that leaves the folder.
    """
    found = _zip_members if archive.name.lower().endswith(".zip") else _tar_members
    for member in found(archive):
        parts = member.path.parts
        if not parts or member.path.is_absolute() or ".." in parts or ":" in parts[0]:
            raise ValueError(f"{archive}: the path {member.name!r} in it leaves its folder")
        yield member


def opened(path: Path, scratch: Path) -> Path:
    """Returns a folder unchanged, or extracts an archive and returns the folder of its files.

    Args:
      path: a folder or an archive.
      scratch: an empty or missing folder to extract an archive into.

    Raises:
      ValueError: the archive is damaged, or holds a link, a device or a path that leaves the
        folder.
      ImportError: the archive is compressed with Zstandard and the extra ``zstd`` is not installed.
    """
    if not path.is_file():
        return path
    extract(path, scratch)
    return scratch


def _tar_members(archive: Path) -> Iterator[Member]:
    with _opened(archive) as tar:
        plain = isinstance(tar.fileobj, io.BufferedReader)  # not a decompressing stream
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore  # the list would grow with the archive
            if member.isdir():
                continue
            if not member.isfile():
                raise ValueError(f"{archive}: {member.name!r} in it is a link or a device")
            place = (member.offset_data, member.size) if plain and not member.issparse() else None
            reader = partial(tar.extractfile, member)
            yield Member(member.name, _inside(member.name), reader, place)  # type: ignore


@contextlib.contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile]:
    if not archive.name.lower().endswith(_ZSTANDARD):
        with tarfile.open(archive) as tar:
            yield tar
        return
    with (
        open(archive, "rb") as file,
        _zstandard(archive)
        .ZstdDecompressor()
        .stream_reader(file, read_across_frames=True) as stream,
        tarfile.open(fileobj=stream, mode="r|") as tar,  # members are read sequentially
    ):
        yield tar


def _zip_members(archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as file:
        for member in file.infolist():
            if member.is_dir():
                continue
            # The upper half of the attributes is the Unix mode; 0o12 is a symbolic link.
            if member.external_attr >> 28 == 0o12:
                raise ValueError(f"{archive}: {member.filename!r} in it is a link")
            yield Member(member.filename, _inside(member.filename), partial(file.open, member))


def _inside(name: str) -> PurePosixPath:
    return PurePosixPath(name.replace("\\", "/"))


def _zstandard(archive: Path) -> ModuleType:
    return extra("zstandard", "zstd", f"{archive}: a Zstandard archive")
