"""The image files that a path leads to: the file itself, or those of a folder or an archive."""

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
_BEGINNING = 32  # bytes by which a file of measurements is known


class ImagePath(NamedTuple):
    """An image file that has not been opened.

    Attributes:
      name: the path as a user knows it; of a file in an archive ``ARCHIVE/PATH_INSIDE``.
      file: where it lies now.
      below: its path below the folder or archive that was asked for; of a file, its name.
    """

    name: str
    file: str
    below: str


class ImagePaths(NamedTuple):
    """Image files that a path leads to.

    Attributes:
      images: in the order of their paths.
      passed: kind (``".txt"``, ``"without a suffix"``) to how many files were passed over.
    """

    images: tuple[ImagePath, ...]
    passed: dict[str, int]


def image_paths(path: str, scratch: str | os.PathLike) -> ImagePaths:
    """Finds the image files that a path leads to.

    A folder is searched with all folders below it. Hidden files, and those in hidden folders, are
    left out without being counted. A file counts by its name or, as a raw chip of MSTAR, by how it
    begins. A path of a file that is no archive is taken as it is.

    Args:
      path: of a file, a folder or an archive.
      scratch: an empty or missing folder, where an archive is unpacked.

    Raises:
      ValueError: there is no image in the folder or archive, or the archive is damaged.
      ImportError: the archive needs a package that is not installed.
    """
    given = Path(path)
    if not (given.is_dir() or (given.is_file() and archive.is_archive(given))):
        return ImagePaths((ImagePath(path, path, given.name),), {})
    root = archive.opened(given, Path(scratch))
    images: list[ImagePath] = []
    passed: collections.Counter[str] = collections.Counter()
    for below in iterate_visible(root):
        if kind := other_kind(root / below):
            passed[kind] += 1
        else:
            name = str(PurePath(path, below))
            images.append(ImagePath(name, str(root / below), str(below)))
    if not images:
        raise no_image(path, passed)
    return ImagePaths(tuple(images), dict(passed))


def no_image(path: str, passed: Mapping[str, int]) -> ValueError:
    """Makes the error about a folder or an archive without an image."""
    others = f" ({_listed(passed)})" if passed else ""
    return ValueError(f"{path}: there is no image in it{others}")


def describe_passed(passed: Mapping[str, int]) -> str:
    """Writes what was passed over, the most frequent kind first; empty for nothing."""
    return f"passed over: {_listed(passed)}" if passed else ""


def _listed(passed: Mapping[str, int]) -> str:
    kinds = sorted(passed.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(
        f"{count} {kind}" if kind == _NO_SUFFIX else f"{count} of the kind {kind}"
        for kind, count in kinds
    )


def other_kind(path: PurePath, beginning: Callable[[int], bytes] | None = None) -> str:
    """Names the kind of a file that is no image; empty for an image.

    Args:
      path: of the file.
      beginning: reads its first bytes, so many; by default from the file at ``path``.
    """
    suffix = path.suffix.lower()
    if suffix in SUFFIXES:
        return ""
    try:
        content = (beginning or partial(_beginning, path))(_BEGINNING)
        known = measurements.reader_of(content) is not None
    except OSError:  # its name promises no image either
        known = False
    return "" if known else suffix or _NO_SUFFIX


def _beginning(path: PurePath, count: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(count)
