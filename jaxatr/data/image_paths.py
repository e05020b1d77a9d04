"""Listing of image files: a single file, or those of a folder, an archive or a table."""

import collections
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path, PurePath
from typing import NamedTuple

from jaxatr.data import archive, measurements
from jaxatr.data.files_below import iterate_visible
from jaxatr.data.images import SUFFIXES

_NO_SUFFIX = "without a suffix"
TABLES = (".csv", ".tsv", ".parquet")
"""Suffixes of tables of images."""
_BEGINNING = 32  # bytes read to recognise a file of measurements


class ImagePath(NamedTuple):
    """An image file that has not been opened.

    Attributes:
      name: the path as the user knows it; for a file in an archive, ``ARCHIVE/PATH_INSIDE``.
      file: the file's present location.
      below: the path relative to the given folder or archive; for a single file, its name.
    """

    name: str
    file: str
    below: str


class ImagePaths(NamedTuple):
    """The image files at a path.

    Attributes:
      images: sorted by path.
      passed: number of skipped files by kind (``".txt"``, ``"without a suffix"``, ``"links to
        nothing"``).
    """

    images: tuple[ImagePath, ...]
    passed: dict[str, int]


def image_paths(path: str, scratch: str | os.PathLike) -> ImagePaths:
    """Lists the image files at a path.

    Folders are searched recursively, and links are followed as in
    :func:`jaxatr.data.files_below.iterate_visible`. Hidden files and files in hidden folders are
    ignored and not counted. A file is recognised by its suffix or, for a raw chip of MSTAR, by its
    first bytes. A file that is neither an archive nor a table is taken without a check.

    Args:
      path: an image, a folder, an archive, or a table (.csv, .tsv, .parquet) with a column of
        paths, relative to its folder.
      scratch: an empty or missing folder to extract an archive into.

    Raises:
      ValueError: the folder or archive has no image, or the archive is damaged or of a kind that
        cannot be read.
      ImportError: reading the archive needs a package that is not installed.
    """
    if not path.strip():
        raise ValueError("got an empty path, wanted an image, a folder or an archive")
    given = Path(path)
    if given.is_file() and given.name.lower().endswith(TABLES):
        from jaxatr.data.sources.image_folder import table  # imported when it is asked for

        listed = [
            (one, Path(os.path.relpath(one, given.parent))) for one in table.read_paths(given)
        ]
        return ImagePaths(
            tuple(
                # Results are stored below a folder by this name, which must not leave it.
                ImagePath(str(one), str(one), below.name if ".." in below.parts else str(below))
                for one, below in listed
            ),
            {},
        )
    if not (given.is_dir() or (given.is_file() and archive.is_archive(given))):
        archive.check_kind(given)
        return ImagePaths((ImagePath(path, path, given.name),), {})
    root = archive.opened(given, Path(scratch))
    images: list[ImagePath] = []
    passed: collections.Counter[str] = collections.Counter()
    for below, passed_as in iterate_visible(root):
        if kind := passed_as or other_kind(root / below):
            passed[kind] += 1
        else:
            name = str(PurePath(path, below))
            images.append(ImagePath(name, str(root / below), str(below)))
    if not images:
        raise no_image(path, passed)
    return ImagePaths(tuple(images), dict(passed))


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
    if suffix in SUFFIXES:
        return ""
    try:
        content = (beginning or partial(_beginning, path))(_BEGINNING)
        known = measurements.reader_of(content) is not None
    except OSError:  # unreadable, and without an image suffix
        known = False
    return "" if known else suffix or _NO_SUFFIX


def _beginning(path: PurePath, count: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(count)
