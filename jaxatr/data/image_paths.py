"""Listing of image files: a single file, or those of a folder, an archive or a table."""

import collections
import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePath
from typing import NamedTuple

from jaxatr.data import archive, decoder, envi
from jaxatr.data.bands import PLAIN, Bands
from jaxatr.data.files_below import is_hidden, iterate_visible
from jaxatr.data.images import SUFFIXES

_NO_SUFFIX = "without a suffix"
TABLES = (".csv", ".tsv", ".parquet")
"""Suffixes of tables of images."""
_BEGINNING = 32  # bytes read to recognise a file of measurements


class ImagePath(NamedTuple):
    """An image file that has not been opened, or an input that cannot be opened.

    Attributes:
      name: the path as the user knows it; for a file in an archive, ``ARCHIVE/PATH_INSIDE``.
      file: the file's present location.
      below: the path relative to the given folder or archive; for a single file, its name.
      error: the error of a folder that cannot be listed, of a damaged archive or of a damaged file
        in one; ``file`` is that folder or archive. None for an image file.
      argument: the argument of the command line that it belongs to, where there is one.
    """

    name: str
    file: str
    below: str
    error: Exception | None = None
    argument: str = ""


class ImagePaths(NamedTuple):
    """The image files at a path.

    Attributes:
      images: sorted by path, with the inputs that cannot be opened; the error about the rest of a
        damaged archive is the last.
      passed: number of skipped files by kind (``".txt"``, ``"without a suffix"``, ``"links to
        nothing"``).
    """

    images: tuple[ImagePath, ...]
    passed: dict[str, int]


def image_paths(path: str, scratch: str | os.PathLike, bands: Bands = PLAIN) -> ImagePaths:
    """Lists the image files at a path.

    Folders are searched recursively, and links are followed as in
    :func:`jaxatr.data.files_below.iterate_visible`. Hidden files and files in hidden folders are
    ignored and not counted. A file is recognised by its suffix or, for a raw chip of MSTAR, by its
    first bytes. A file that is neither an archive nor a table is taken without a check. If a
    subfolder cannot be listed, or an archive is damaged, the other images are listed.

    Args:
      path: an image, a folder, an archive, or a table (.csv, .tsv, .parquet) with a column of
        paths, relative to its folder.
      scratch: an empty or missing folder to extract an archive into.
      bands: how files become images: of the files of one chip, only the first is listed.

    Raises:
      ValueError: the folder, archive or table has no image, the archive is of a kind that cannot be
        read, or the table cannot be read.
      ImportError: reading the archive needs a package that is not installed.
    """
    if not path.strip():
        raise ValueError("got an empty path, wanted an image, a folder or an archive")
    given = Path(path)
    if given.is_file() and given.name.lower().endswith(TABLES):
        return ImagePaths(tuple(_of_table(given)), {})
    if not (given.is_dir() or (given.is_file() and archive.is_archive(given))):
        archive.check_kind(given)
        return ImagePaths((ImagePath(path, path, given.name),), {})
    images: list[ImagePath] = []
    passed: collections.Counter[str] = collections.Counter()
    broken: list[ImagePath] = []
    rest: list[ImagePath] = []

    def damaged(member: archive.Member | None, error: ValueError) -> None:
        reason = ValueError(reason_of(error, str(given)))
        if member is None:
            rest.append(ImagePath(path, path, given.name, reason))
        elif any(map(is_hidden, member.path.parts)):
            return
        elif kind := kind_of_member(given, member):
            passed[kind] += 1
        else:
            broken.append(_below(path, member.path, path, reason))

    root = archive.opened(given, Path(scratch), damaged)
    for below, passed_as, error in iterate_visible(root):
        kind = "" if error else passed_as or other_kind(root / below)
        if kind:
            passed[kind] += 1
        else:
            images.append(_below(path, below, str(root / below), error))
    firsts = {*bands.firsts([PurePath(image.below) for image in images])}
    images = [image for image in images if PurePath(image.below) in firsts]
    if broken:  # the others are sorted
        images = sorted(images + broken, key=lambda image: PurePath(image.below).parts)
    images += rest
    if not images:
        raise no_image(path, passed)
    return ImagePaths(tuple(images), dict(passed))


def _below(path: str, below: PurePath, file: str, error: Exception | None = None) -> ImagePath:
    return ImagePath(str(PurePath(path, below)), file, str(below), error)


def _of_table(path: Path) -> Iterator[ImagePath]:
    from jaxatr.data.sources.image_folder import table  # imported when it is asked for

    for number, row in enumerate(table.read_paths(path)):
        if isinstance(row, ValueError):
            yield _below(str(path), PurePath(str(number)), str(path), row)
            continue
        file = str(path.parent / row)
        below = Path(os.path.relpath(file, path.parent))
        # Results are stored below a folder by this name, which must not leave it.
        yield ImagePath(file, file, below.name if ".." in below.parts else str(below))


def reason_of(error: Exception, name: str, file: str = "") -> str:
    """Returns the text of an error about an input, without the input's name in front.

    Args:
      error: the error.
      name: the input's path as the user knows it.
      file: the present location, which the error may name; empty if there is none.
    """
    return _text(error, name, file).removeprefix(f"{name}: ")


def line_of(error: Exception, name: str, file: str = "") -> str:
    """Returns the text of an error about an input, with the input's name.

    Args:
      error: the error.
      name: see :func:`reason_of`.
      file: see :func:`reason_of`.

    >>> line_of(FileNotFoundError(2, "No such file"), "file")
    'file: No such file'
    """
    text = _text(error, name, file)
    # The system's messages name no file, but a short name may occur in them as a word.
    named = not isinstance(error, OSError) and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)
    return text if named else f"{name}: {reason_of(error, name, file)}"


def _text(error: Exception, name: str, file: str) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.replace(file or name, name)


def no_image(path: str, passed: Mapping[str, int]) -> ValueError:
    """Creates the error for a folder or an archive without images."""
    others = f" ({_listed(passed)})" if passed else ""
    return ValueError(f"{path}: there is no image in it{others}")


def describe_passed(passed: Mapping[str, int]) -> str:
    """Summarises the skipped files, the most frequent kind first; empty if there are none."""
    return f"skipped: {_listed(passed)}" if passed else ""


def _listed(passed: Mapping[str, int]) -> str:
    kinds = sorted(passed.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {describe_kind(kind)}" for kind, count in kinds)


def describe_kind(kind: str) -> str:
    """Describes a kind of file, as in "3 of type .txt" or "2 without a suffix"."""
    return f"of type {kind}" if kind.startswith(".") else kind


def other_kind(path: PurePath, beginning: Callable[[int], bytes] | None = None) -> str:
    """Returns the kind of a file that is not an image; empty for an image.

    Args:
      path: the file's path.
      beginning: reads the given number of leading bytes; by default from the file at ``path``.
    """
    suffix = path.suffix.lower()
    if suffix in SUFFIXES or (beginning is None and envi.is_part(Path(path))):
        return ""
    try:
        content = (beginning or partial(_beginning, path))(_BEGINNING)
        known = decoder.is_measurement(content) or content.startswith(
            (*decoder.RADAR, decoder.ENVI)
        )
    except (OSError, ValueError):  # unreadable, and without an image suffix
        known = False
    return "" if known else suffix or _NO_SUFFIX


def kind_of_member(path: Path, member: archive.Member) -> str:
    """Returns :func:`other_kind` of a file in the archive at ``path``."""

    def beginning(count: int) -> bytes:
        with archive.reading(path), contextlib.closing(member.open()) as file:
            return file.read(count)

    return other_kind(member.path, beginning)


def _beginning(path: PurePath, count: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(count)
