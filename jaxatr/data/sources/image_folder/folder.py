"""Listing of image files in a folder, with their classes, splits and hierarchy."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from jaxatr.data import archive
from jaxatr.data.files_below import is_hidden
from jaxatr.data.image_paths import describe_kind
from jaxatr.data.images import SUFFIXES
from jaxatr.data.sources.image_folder import table
from jaxatr.data.sources.image_folder.layouts import SPLIT_NAMES, Listed, arranged
from jaxatr.resolve import nearest

WANTED = (
    "<split>/<class>/*, <coarse>/<class>/*, <split>/<coarse>/<class>/* or <class>/* of "
    f"{', '.join(suffix[1:] for suffix in SUFFIXES)}"
)
_COARSE = "coarse.json"
_DEEPEST = 6  # at most three are valid; deeper ones are searched to report misplaced images


class Passed(NamedTuple):
    """Skipped files of one kind.

    Attributes:
      kind: a suffix such as ".txt", or a description such as "without a suffix".
      paths: sorted, relative to the folder.
    """

    kind: str
    paths: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class ImageFolder:
    """The images of a folder, unopened.

    Attributes:
      root: the folder.
      shown: its path as the user knows it; of an unpacked archive, that of the archive.
      files: split names to (path relative to ``root``, label), sorted by path.
      classes: names of the classes of all splits, sorted.
      coarse_classes: names, sorted, or None without a hierarchy.
      fine_to_coarse: the coarse class of each class, or None.
      passed: skipped files, by kind.
    """

    root: Path
    shown: Path
    files: dict[str, list[tuple[str, int]]]
    classes: tuple[str, ...]
    coarse_classes: tuple[str, ...] | None
    fine_to_coarse: tuple[int, ...] | None
    passed: tuple[Passed, ...] = ()

    def signature(self) -> str:
        """Returns a digest of names, sizes and dates, which is cheap and changes with any file."""
        names = (self.classes, self.coarse_classes, self.fine_to_coarse)
        digest = hashlib.sha256(repr(names).encode())
        for split, files in sorted(self.files.items()):
            for path, label in files:
                try:
                    status = (self.root / path).stat()
                except OSError:  # listed in a table, but missing
                    digest.update(repr((split, path, label)).encode())
                    continue
                # Copying may preserve the modification time, but never the inode's change time.
                dates = (status.st_mtime_ns, status.st_ctime_ns)
                facts = (split, path, label, status.st_size, *dates)
                digest.update(repr(facts).encode())
        return digest.hexdigest()


class Found(NamedTuple):
    """Image files with their classes.

    Attributes:
      root: the folder that their paths are relative to.
      shown: its path as the user knows it; of an unpacked archive, that of the archive.
      listed: the files, at least one, sorted by path.
      passed: skipped files, by kind.
    """

    root: Path
    shown: Path
    listed: Sequence[Listed]
    passed: tuple[Passed, ...]


def find(root: Path, *, layout: str = "", table_name: str = "", inside: bool = False) -> Found:
    """Finds the images below a folder.

    Args:
      root: a folder with ``<split>/<class>/<image>``, ``<coarse>/<class>/<image>``, both or neither
        of these levels above the class; or with a table. Links are followed.
      layout: one of :data:`~jaxatr.data.sources.image_folder.layouts.LAYOUTS`; empty to infer it.
      table_name: path below ``root`` of a table, which replaces the folders' names.
      inside: refuse paths in the table that leave the folder.

    Raises:
      ValueError: the folder is missing or empty, an image is misplaced, or the table cannot be
        used.
    """
    if not root.exists():
        raise ValueError(f"there is no folder or file {root}")
    if not root.is_dir():
        raise ValueError(
            f"{root} is a file, but neither an archive ({', '.join(archive.SUFFIXES)}) nor a table "
            f"({', '.join(table.SUFFIXES)})"
        )
    if table_name:
        if layout:
            raise ValueError("layout: not allowed together with a table: leave one of them out")
        if not table.is_table(Path(table_name)):
            raise ValueError(
                f"table: got {table_name!r}, wanted one of {', '.join(table.SUFFIXES)}"
            )
        listed = sorted(table.read_table(root / table_name, inside=inside))
        if not listed:
            raise ValueError(f"{root / table_name}: no images are listed")
        folder = (root / table_name).parent
        return Found(folder, folder, listed, ())
    paths, passed = _by_kind(_entries(root, (), ()))
    if not paths:
        others = ", ".join(f"{len(one.paths)} {describe_kind(one.kind)}" for one in passed)
        raise ValueError(
            f"no images in {root}{f' ({others})' if others else ''}; looked for {WANTED}"
        )
    return Found(root, root, arranged(root, paths, layout, WANTED), tuple(passed))


def divided(found: Found, test_fraction: float) -> ImageFolder:
    """Numbers the classes of images, and divides the images into splits.

    Args:
      found: the images.
      test_fraction: without splits, the share of each class that becomes the test split, rounded,
        but at least one image of a class with two or more. Images are chosen by the SHA-256 of
        their paths, hence equally on every machine.

    Raises:
      ValueError: there is only one class, or ``coarse.json`` does not fit.
    """
    if not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction: got {test_fraction}, wanted a fraction in (0, 1)")
    root, listed = found.root, found.listed
    classes = tuple(sorted({one.label for one in listed}))
    if len(classes) == 1:
        raise ValueError(f"{root} has only one class, {classes[0]!r}; looked for {WANTED}")
    drawn = _drawn(listed, test_fraction) if listed[0].split is None else frozenset()
    number = {name: place for place, name in enumerate(classes)}
    files: dict[str, list[tuple[str, int]]] = {}
    if listed[0].split is None:
        files = {"train": [], "test": []}
    for one in listed:
        split = one.split or ("test" if one.path in drawn else "train")
        files.setdefault(split, []).append((one.path, number[one.label]))
    if not files.get("test", True):
        raise ValueError(
            f"{root}: every class has a single image, so there are none for the test split: give "
            "more images, or a folder for each split"
        )
    hierarchy = _given_hierarchy(root, listed, classes)
    return ImageFolder(root, found.shown, files, classes, *hierarchy, found.passed)


def single_folder(root: Path) -> Path:
    """Returns the single folder that wraps an archive's class or split folders, else ``root``."""
    entries = [entry for entry in root.iterdir() if not is_hidden(entry.name)]
    if len(entries) == 1 and entries[0].is_dir() and entries[0].name.lower() not in SPLIT_NAMES:
        return entries[0]
    return root


def _entries(
    folder: Path, parts: tuple[str, ...], above: tuple[Path, ...]
) -> Iterator[tuple[PurePosixPath, str]]:
    """Yields the path of each file below a folder, and its kind (empty for an image).

    Args:
      folder: the folder to search.
      parts: its path relative to the data folder.
      above: the resolved paths of the folders above it.
    """
    above = (*above, folder.resolve())
    with os.scandir(folder) as entries:
        for entry in entries:
            path = PurePosixPath(*parts, entry.name)
            if is_hidden(entry.name):
                continue
            if entry.is_dir():
                if entry.is_symlink() and Path(entry.path).resolve() in above:
                    yield path, "link to a folder above it"
                elif len(parts) < _DEEPEST:
                    yield from _entries(Path(entry.path), path.parts, above)
            elif not entry.is_file():
                yield path, "link to nothing" if entry.is_symlink() else "device"
            elif path.suffix.lower() in SUFFIXES:
                yield path, ""
            elif path != PurePosixPath(_COARSE):
                yield path, path.suffix.lower() or "without a suffix"


def _by_kind(
    entries: Iterator[tuple[PurePosixPath, str]],
) -> tuple[list[PurePosixPath], list[Passed]]:
    """Returns the images' paths, sorted, and other files by kind, the most frequent kind first."""
    images, others = [], {}
    for path, kind in sorted(entries):
        (others.setdefault(kind, []) if kind else images).append(path)
    passed = [Passed(kind, tuple(map(str, paths))) for kind, paths in others.items()]
    return images, sorted(passed, key=lambda one: (-len(one.paths), one.kind))


def _drawn(listed: Sequence[Listed], fraction: float) -> frozenset[str]:
    """Draws the test split: a share of each class."""
    members: dict[str, list[str]] = {}
    for one in listed:
        members.setdefault(one.label, []).append(one.path)
    test: set[str] = set()
    for group in members.values():
        drawn = sorted(group, key=lambda path: hashlib.sha256(path.encode()).digest())
        wanted = max(1, round(fraction * len(group)))
        test.update(drawn[: min(wanted, len(group) - 1)])
    return frozenset(test)


def _given_hierarchy(
    root: Path, listed: Sequence[Listed], classes: tuple[str, ...]
) -> tuple[tuple[str, ...] | None, tuple[int, ...] | None]:
    """Returns the coarse classes given with the images or by ``coarse.json``."""
    written = _hierarchy(root / _COARSE, classes)
    if listed[0].coarse is None:
        return written
    if written[0] is not None:
        raise ValueError(f"{root / _COARSE}: the images already have coarse classes: remove it")
    parents: dict[str, str] = {}
    for one in listed:
        parent = one.coarse or ""
        if parents.setdefault(one.label, parent) != parent:
            raise ValueError(
                f"{root}: the class {one.label!r} belongs to {parents[one.label]!r}, but by "
                f"{one.path} to {parent!r}: a class has one coarse class"
            )
    return _numbered(parents, classes)


def _hierarchy(
    path: Path, classes: tuple[str, ...]
) -> tuple[tuple[str, ...] | None, tuple[int, ...] | None]:
    try:
        coarse = json.loads(path.read_text())
    except FileNotFoundError:
        return None, None
    except ValueError as error:
        raise ValueError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(coarse, dict) or not all(isinstance(v, str) for v in coarse.values()):
        raise ValueError(f'{path}: expected {{"fine class": "coarse class", …}}')
    if missing := [name for name in classes if name not in coarse]:
        raise ValueError(f"{path}: no coarse class for {', '.join(missing)}")
    if unknown := [name for name in coarse if name not in classes]:
        raise ValueError(f"{path}: there is no class {unknown[0]!r}{nearest(unknown[0], classes)}")
    return _numbered(coarse, classes)


def _numbered(
    coarse: dict[str, str], classes: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    names = tuple(sorted(set(coarse.values())))
    return names, tuple(names.index(coarse[name]) for name in classes)
