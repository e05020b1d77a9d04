"""Extraction of archives that cannot write outside the target folder."""

import contextlib
import errno
import io
import lzma
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import ModuleType
from typing import IO, NamedTuple

from jaxatr.extras import extra

_ZSTANDARD = (".tar.zst", ".tzst")
_TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
SUFFIXES = (*_TAR, *_ZSTANDARD, ".zip")
_OTHERS = (".7z", ".rar", ".gz", ".bz2", ".xz", ".zst", ".lz4", ".cab", ".iso")
MOST_TIMES, ROOM = 100, 1 << 28
"""An archive may unpack to this many times its size, and to 256 MiB in any case."""
_UTF_8 = 0x800  # the flag in a zip of a name in UTF-8
_LONGEST_NAME = 1 << 20  # bytes of a header that holds a long name or other facts about a file
# Names that the file system refuses, or that another file's name rules out.
_UNFIT = (errno.ENAMETOOLONG, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.EILSEQ)


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
      size: number of bytes, unpacked; reading gives no more.
      open: opens the content; call it before advancing to the next member.
      place: offset and length of the content in the archive file; None if compressed or sparse.
    """

    name: str
    path: PurePosixPath
    size: int
    open: Callable[[], IO[bytes]]
    place: tuple[int, int] | None = None


Damaged = Callable[[Member | None, ValueError], object]
"""Receives a file of an archive that cannot be read, or None for the rest of the archive."""


def extract(archive: Path, directory: Path, damaged: Damaged | None = None) -> None:
    """Extracts an archive's files below ``directory``, as plain files and folders only.

    Args:
      archive: the archive.
      directory: the folder; it is created if missing.
      damaged: receives each file that cannot be extracted, while the others are extracted; the
        second of two files with one name is among them. Without it, the first damage is raised,
        and a later file replaces an earlier one of the same name.

    Raises:
      ValueError: the archive is damaged, or holds a link, a device, a path that leaves the folder
        or a name that the file system cannot store.
      ImportError: the archive is compressed with Zstandard and the extra ``zstd`` is not installed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with reading(archive):
            for member in members(archive):
                try:
                    _extract(archive, member, directory, again=damaged is None)
                except ValueError as error:
                    if damaged is None:
                        raise
                    damaged(member, error)
    except ValueError as error:
        if damaged is None:
            raise
        damaged(None, error)


def _extract(archive: Path, member: Member, directory: Path, *, again: bool) -> None:
    target = directory.joinpath(*member.path.parts)
    try:
        if target.is_file() and not again:
            raise twice(archive, member)
        target.parent.mkdir(parents=True, exist_ok=True)
        file = open(target, "wb")
    except OSError as error:
        if error.errno not in _UNFIT:
            raise
        reason = f"the file {member.name!r} in it cannot be extracted: {error.strerror}"
        raise ValueError(f"{archive}: {reason}") from error
    try:
        with file, reading(archive), contextlib.closing(member.open()) as source:
            shutil.copyfileobj(source, file)
    except ValueError:
        target.unlink(missing_ok=True)  # only a part of it
        raise


def twice(archive: Path, member: Member) -> ValueError:
    """Creates the error for the second file of a name."""
    return ValueError(f"{archive}: the archive has {member.name!r} twice")


@contextlib.contextmanager
def naming(folder: Path, name: Path) -> Iterator[None]:
    """Gives errors the name of an archive in place of the folder that it was extracted to.

    Args:
      folder: the folder.
      name: the archive's path as the user knows it.

    Raises:
      ValueError: the body raised one.
    """
    try:
        yield
    except ValueError as error:
        if folder == name or str(folder) not in str(error):
            raise
        raise ValueError(str(error).replace(str(folder), str(name))) from error


@contextlib.contextmanager
def reading(archive: Path) -> Iterator[None]:
    """Turns the errors raised while reading a damaged archive into one that names the archive.

    Raises:
      ValueError: the archive is damaged.
      ImportError: the archive is compressed with Zstandard and the extra ``zstd`` is not installed.
    """
    errors: tuple[type[Exception], ...] = (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError)
    errors = (*errors, lzma.LZMAError, zlib.error, UnicodeDecodeError)
    if archive.name.lower().endswith(_ZSTANDARD):
        errors = (*errors, _zstandard(archive).ZstdError)
    if archive.name.lower().endswith(".zip"):
        errors = (*errors, RuntimeError)  # encrypted, or an unsupported kind of compression
    try:
        yield
    except errors as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the operating system, such as a full disk
        reason = str(error).partition("\n")[0].rstrip(":")  # tarfile lists all compressions below
        raise ValueError(f"{archive}: not a readable archive ({reason})") from error


def members(archive: Path) -> Iterator[Member]:
    """Yields an archive's files in stored order; use it within :func:`reading`.

    Raises:
      ValueError: the archive holds a link, a device, or a path that leaves the folder, or unpacks
        to many times its size.
    """
    found = _zip_members if archive.name.lower().endswith(".zip") else _tar_members
    most, unpacked = MOST_TIMES * archive.stat().st_size + ROOM, 0
    for member in found(archive):
        unpacked += member.size
        if unpacked > most:
            raise ValueError(
                f"{archive}: unpacks to more than {MOST_TIMES} times its size (up to "
                f"{member.name!r}, {unpacked} bytes): unpack it yourself if you trust it"
            )
        parts = member.path.parts
        drive = PureWindowsPath(parts[0]).drive if parts else ""  # as in C:/x, but not in 10:00.png
        if not parts or member.path.is_absolute() or ".." in parts or drive:
            raise ValueError(f"{archive}: the path {member.name!r} in it leaves its folder")
        yield member


def check_unpacked(path: str | os.PathLike) -> None:
    """Checks the stated sizes in a file of NumPy arrays, ``.npz``; other files pass.

    Raises:
      ValueError: it would unpack to many times its size.
    """
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as file:
            unpacked = sum(one.file_size for one in file.infolist())
        if unpacked > MOST_TIMES * Path(path).stat().st_size + ROOM:
            raise ValueError(f"unpacks to {unpacked} bytes, {MOST_TIMES} times its size and more")


def opened(path: Path, scratch: Path, damaged: Damaged | None = None) -> Path:
    """Returns a folder unchanged, or extracts an archive and returns the folder of its files.

    Args:
      path: a folder or an archive.
      scratch: an empty or missing folder to extract an archive into.
      damaged: see :func:`extract`.

    Raises:
      ValueError: the archive is damaged, or holds a link, a device or a path that leaves the
        folder.
      ImportError: the archive is compressed with Zstandard and the extra ``zstd`` is not installed.
    """
    if not path.is_file():
        return path
    extract(path, scratch, damaged)
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
            yield Member(member.name, _inside(member.name), member.size, reader, place)  # type: ignore


_MORE_HEADER = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)


class _Header(tarfile.TarInfo):
    """A header of a tar file; ``tarfile`` takes a damaged or missing one for the archive's end."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> tarfile.TarInfo:
        """Parses a header; ``tarfile`` reads what belongs to it into memory."""
        header = super().frombuf(buf, encoding, errors)
        if header.type in _MORE_HEADER and header.size > _LONGEST_NAME:
            raise tarfile.ReadError(f"a header of {header.size} bytes")
        return header

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> tarfile.TarInfo:
        """Reads the next header of a tar file."""
        try:
            return super().fromtarfile(tar)
        except tarfile.EOFHeaderError:  # type: ignore  # zeros, which end an archive
            raise
        except tarfile.HeaderError as error:
            if not tar.offset:
                raise  # another kind of file, or another compression to try
            is_short = isinstance(error, tarfile.EmptyHeaderError)  # type: ignore
            reason = "the rest is missing" if is_short else error
            raise tarfile.ReadError(f"byte {tar.offset}: {reason}") from error


@contextlib.contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile]:
    if not archive.name.lower().endswith(_ZSTANDARD):
        with tarfile.open(archive, tarinfo=_Header) as tar:
            yield tar
        return
    with (
        open(archive, "rb") as file,
        _zstandard(archive)
        .ZstdDecompressor()
        .stream_reader(file, read_across_frames=True) as stream,
        # "|": members are read sequentially.
        tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as tar,
    ):
        yield tar


def _zip_members(archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as file:
        for member in file.infolist():
            name = name_in_zip(member)
            if name.endswith(("/", "\\")):  # a folder; older .NET writes backslashes
                continue
            # The upper half of the attributes is the Unix mode; 0o12 is a symbolic link.
            if member.external_attr >> 28 == 0o12:
                raise ValueError(f"{archive}: {name!r} in it is a link")
            yield Member(name, _inside(name), member.file_size, partial(file.open, member))


def name_in_zip(member: zipfile.ZipInfo) -> str:
    """Returns the name of a member of a zip.

    macOS and Info-ZIP write names in UTF-8 without the flag that says so; ``zipfile`` then takes
    them for code page 437. A name in that code page that is not ASCII is hardly ever valid UTF-8.
    """
    if not member.flag_bits & _UTF_8:
        with contextlib.suppress(UnicodeError):
            return member.filename.encode("cp437").decode("utf-8")
    return member.filename


def _inside(name: str) -> PurePosixPath:
    return PurePosixPath(name.replace("\\", "/"))


def _zstandard(archive: Path) -> ModuleType:
    return extra("zstandard", "zstd", f"{archive}: a Zstandard archive")
