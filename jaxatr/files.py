"""Files on disk: the user's cache folder, reading, atomic writes, locks and mapped arrays."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
import unicodedata
import weakref
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, ClassVar

import filelock
import numpy as np
import platformdirs

MAPPED = 1 << 28
"""Size in bytes from which an array of a file is memory-mapped, by default."""

LOCK_SECONDS = 60.0
"""Longest time to wait for a lock file, by default."""

_ASK_SECONDS = 0.2


class MissingFileError(FileNotFoundError, ValueError):
    """There is no file or folder of the name that was given."""


def cache_folder() -> Path:
    """Returns the package's folder in the user's cache; ``XDG_CACHE_HOME`` moves it on Linux."""
    return platformdirs.user_cache_path("jaxatr", appauthor=False)


MOST_BYTES = 1 << 32
"""Largest file that :func:`read_regular` reads into memory."""


def in_other_form(path: str | os.PathLike) -> Path | None:
    """Returns the existing path whose names differ from a path's only in their form of Unicode.

    A table that was written on macOS has composed or decomposed names where the files that were
    copied to Linux have the others; macOS takes them for the same.

    Returns:
      the path; None if there is none, or the names are ASCII.
    """
    path = Path(path)
    if str(path).isascii():
        return None
    found = Path(path.anchor)
    for name in path.parts[1:] if path.anchor else path.parts:
        names = (name, *(unicodedata.normalize(form, name) for form in ("NFC", "NFD")))
        there = next((one for one in names if os.path.lexists(found / one)), None)
        if there is None:
            return None
        found /= there
    return found


def in_any_form(path: str | os.PathLike) -> Path:
    """Returns a path as it is on the disk, in whatever form of Unicode; itself if there is none."""
    return Path(path) if os.path.lexists(path) else in_other_form(path) or Path(path)


def open_regular(path: str | os.PathLike) -> IO[bytes]:
    """Opens a file for reading, but no device or pipe, which might never end.

    Where there is no such file, one whose name is the same in another form of Unicode is opened.

    Raises:
      OSError: the file cannot be opened, or is not a regular file.
    """
    # A pipe without a writer would otherwise wait for one. Windows needs to be told of bytes.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        opened = os.open(path, flags)
    except FileNotFoundError:
        if (other := in_other_form(path)) is None:
            raise
        opened = os.open(other, flags)
    file = os.fdopen(opened, "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "a device or a pipe, wanted a regular file", str(path))
    return file


def read_regular(path: str | os.PathLike) -> bytes:
    """Reads a file as :func:`open_regular` opens it.

    Raises:
      OSError: it cannot be opened or read, or has more than :data:`MOST_BYTES`.
    """
    with open_regular(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > MOST_BYTES:
            what = f"a file of {size} bytes, wanted at most {MOST_BYTES}"
            raise OSError(errno.EFBIG, what, str(path))
        return file.read()


def check_replaceable(path: str | os.PathLike) -> None:
    """Checks that :func:`replacing` can write a file; for use before a long computation.

    Raises:
      OSError: ``path`` is a folder, or its folder does not exist or is not writable.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, wanted a file's name")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise PermissionError(f"{path}: no files can be written in the folder {path.parent}")


def check_page(path: str | os.PathLike) -> None:
    """Checks, as :func:`check_replaceable`, that an HTML page can be written, and its name.

    Raises:
      OSError: see :func:`check_replaceable`.
      ValueError: the name does not end in ``.html`` or ``.htm``.
    """
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"out: got {path}, wanted an HTML file, whose name ends in .html")
    check_replaceable(path)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # of a write, whose error names no file


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[IO[bytes]]:
    """Opens a binary file that atomically replaces ``path`` when the block ends.

    If an error occurs inside the block, or the process is killed, ``path`` is left unchanged. The
    file has the default permissions of a new file.

    Raises:
      OSError: the file cannot be written, ``path`` is a folder, or its folder does not exist.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with replacing(f"{folder}/a.txt") as file:
    ...     _ = file.write(b"whole")
    >>> Path(folder, "a.txt").read_text()
    'whole'
    """
    check_replaceable(path)
    path = Path(path)
    # Unique per thread; mkstemp would create a file that only its owner can read. Of a long name,
    # 50 characters of up to 4 bytes leave room within the 255 bytes that a name may have.
    partial = path.with_name(f".{path.name[:50]}.{os.getpid()}.{os.urandom(4).hex()}.partial")
    try:
        with open(partial, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        if isinstance(error, OSError) and (
            error.filename == str(partial) or (error.filename is None and error.errno in _FULL)
        ):
            error.filename = str(path)  # the caller knows no other name
        raise


def load_arrays(path: str | os.PathLike, mapped: int = MAPPED) -> dict[str, np.ndarray]:
    """Reads the arrays of an ``.npz`` file; large ones are memory-mapped.

    Args:
      path: a file written by ``np.savez``.
      mapped: size in bytes from which an array is memory-mapped; its checksum is not verified.

    Raises:
      Exception: the file is damaged; the type of the exception is that of ``np.load``.
    """
    arrays: dict[str, np.ndarray] = {}
    with np.load(path, allow_pickle=False) as file:
        for name in file.files:
            info = file.zip.getinfo(f"{name}.npy")
            large = info.file_size >= mapped and info.compress_type == zipfile.ZIP_STORED
            arrays[name] = _mapped(path, info) if large else file[name]
    return arrays


def _mapped(path: str | os.PathLike, info: zipfile.ZipInfo) -> np.ndarray:
    """Memory-maps an uncompressed member of an archive."""
    with open(path, "rb") as file:
        file.seek(info.header_offset + 26)  # the local header's lengths of name and extra field
        lengths = file.read(4)
        name, more = (int.from_bytes(lengths[at : at + 2], "little") for at in (0, 2))
        file.seek(info.header_offset + 30 + name + more)
        version = np.lib.format.read_magic(file)
        one = version == (1, 0)
        header = np.lib.format.read_array_header_1_0 if one else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = header(file)
        order = "F" if fortran else "C"
        return np.memmap(path, dtype, mode="r", offset=file.tell(), shape=shape, order=order)


def read_json(path: str | os.PathLike) -> Any:
    """Reads a JSON file.

    Raises:
      OSError: the file cannot be read.
      ValueError: the content is not JSON.
    """
    try:
        return json.loads(read_regular(path))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


class Fields(dict[str, Any]):
    """The fields of a JSON object; reading one that is missing names it and the file.

    Attributes:
      origin: the file, and the field of the object within it.
    """

    def __init__(self, content: Mapping[str, Any], origin: str):
        """Takes the content of an object; the objects in it become fields too."""
        self.origin = origin
        super().__init__(
            (name, Fields(value, f"{origin}: {name}") if isinstance(value, dict) else value)
            for name, value in content.items()
        )

    def __missing__(self, name: str) -> Any:
        """Raises the error for a missing field."""
        raise ValueError(f"{self.origin}: the field {name!r} is missing")


_DIGEST = "digest"


def read_fields(path: str | os.PathLike) -> Fields:
    """Reads a JSON object, and verifies its digest if :func:`write_fields` wrote one.

    Raises:
      OSError: the file cannot be read.
      ValueError: the content is not a JSON object, or was changed after it was written.
    """
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged: it is {json.dumps(content)[:20]}, wanted an object")
    written = content.pop(_DIGEST, None)
    if written not in (None, _digest(content)):
        raise ValueError(
            f"{path} was changed after it was written: set it back, or, to accept the change, "
            f'delete its entry "{_DIGEST}"'
        )
    return Fields(content, str(path))


def write_fields(path: str | os.PathLike, content: Mapping[str, Any]) -> None:
    """Writes a JSON object atomically, with a digest that :func:`read_fields` verifies."""
    fields = json.loads(json.dumps(content))
    fields.pop(_DIGEST, None)  # of an earlier content
    text = json.dumps({_DIGEST: _digest(fields)} | fields, indent=2, ensure_ascii=False)
    write_text(path, text + "\n")


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


_SCRATCH = "jaxatr-"
_LOCK_SUFFIX = ".lock"
_YOUNG = 5.0  # seconds in which another process may not yet hold the lock that it has created


class Scratch(tempfile.TemporaryDirectory[str]):
    """A temporary folder that does not outlast its process for long.

    A killed process leaves its folder, with users' images in it. The next one to make such a folder
    removes it, because its lock, a file beside it, is no longer held.
    """

    _made: ClassVar["weakref.WeakSet[Scratch]"] = weakref.WeakSet()

    def __init__(self, folder: str | None = None):
        """Makes the folder.

        Args:
          folder: where; None for the system's temporary folder.
        """
        _remove_left(Path(folder or tempfile.gettempdir()))
        super().__init__(prefix=_SCRATCH, dir=folder, ignore_cleanup_errors=True)
        self._process = os.getpid()
        self._lock = filelock.FileLock(f"{self.name}{_LOCK_SUFFIX}", thread_local=False)
        self._lock.acquire(timeout=LOCK_SECONDS)
        self._made.add(self)

    def cleanup(self) -> None:
        """Removes the folder."""
        super().cleanup()
        self._made.discard(self)
        Path(self._lock.lock_file).unlink(missing_ok=True)
        self._lock.release()

    @classmethod
    def remove_all(cls) -> None:
        """Removes the folders of this process, which is about to end."""
        for one in [one for one in cls._made if one._process == os.getpid()]:
            one.cleanup()


def _remove_left(folder: Path) -> None:
    """Removes the temporary folders that this user's killed processes have left."""
    for path in folder.glob(f"{_SCRATCH}*{_LOCK_SUFFIX}"):
        with contextlib.suppress(OSError):  # it has just been removed; a time-out is one, too
            facts = path.lstat()
            own = not hasattr(os, "getuid") or facts.st_uid == os.getuid()
            if not own or time.time() - facts.st_mtime < _YOUNG:
                continue
            with filelock.FileLock(path, timeout=0.0, thread_local=False):
                shutil.rmtree(path.with_suffix(""), ignore_errors=True)
                path.unlink(missing_ok=True)


def within(folder: str | os.PathLike, name: str) -> Path:
    """Returns the path of a file that another file names, in a folder or below it.

    Args:
      folder: the folder that the path must not leave.
      name: path relative to the folder.

    Raises:
      ValueError: the path leaves the folder, by ``..``, as an absolute path, or by a link to
        another folder.

    >>> within("runs/1", "../2/record.json")
    Traceback (most recent call last):
    ValueError: '../2/record.json' is not a path within runs/1
    """
    path = Path(folder, name)
    if not path.name or not path.parent.resolve().is_relative_to(Path(folder).resolve()):
        raise ValueError(f"{name!r} is not a path within {folder}")
    return path


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes a UTF-8 text file atomically; bytes of names that are not UTF-8 are escaped."""
    with replacing(path) as file:
        file.write(text.encode(errors="backslashreplace"))


@contextlib.contextmanager
def locked(
    path: str | os.PathLike,
    *,
    seconds: float = LOCK_SECONDS,
    given_up: Callable[[], bool] = lambda: False,
    again: bool = False,
) -> Iterator[filelock.BaseFileLock]:
    """Holds the lock file ``path`` exclusively.

    The operating system releases the lock when the process ends, even if it is killed.

    Args:
      path: the file; it is created if necessary.
      seconds: longest time to wait for another process or thread that holds it; infinite to wait
        for as long as it takes.
      given_up: asked several times a second while waiting; True stops the waiting at once.
      again: let this process, in any thread, enter further contexts of the same path.

    Raises:
      TimeoutError: it is held for longer, or ``given_up``; the message names the file.
    """
    lock = filelock.FileLock(path, is_singleton=again, thread_local=not again)
    start, held = time.monotonic(), False
    while not held:
        try:
            lock.acquire(timeout=min(_ASK_SECONDS, seconds))
            held = True
        except filelock.Timeout:
            waited = time.monotonic() - start
            if waited >= seconds or given_up():
                raise TimeoutError(
                    f"{path} is held by another process, after {waited:.0f} s of waiting: try "
                    "again when that one has ended"
                ) from None
    try:
        yield lock
    finally:
        lock.release()
