"""Listing of image files in a folder, with their classes, splits and hierarchy."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from jaxatr.data import archive, envi, folds
from jaxatr.data.bands import PLAIN, Bands
from jaxatr.data.class_names import class_name
from jaxatr.data.files_below import as_utf8, is_hidden, iterate_visible
from jaxatr.data.image_paths import describe_kind
from jaxatr.data.images import SUFFIXES
from jaxatr.data.sources.image_folder import table
from jaxatr.data.sources.image_folder.layouts import (
    LAYOUTS,
    Listed,
    arranged,
    check_layout,
    is_usual,
    wrapper,
)
from jaxatr.files import MissingFileError, read_regular
from jaxatr.resolve import nearest
from jaxatr.typing import Bool, Int, Shaped

WANTED = (
    "<split>/<class>/*, <class>/<split>/*, <coarse>/<class>/*, <split>/<coarse>/<class>/*, "
    "<coarse>/<class>/<split>/* or <class>/* of "
    f"{', '.join(suffix[1:] for suffix in SUFFIXES)}"
)
_COARSE = "coarse.json"


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
      empty: paths of folders without images where those of classes are.
      layout: how the folders were read, one of :data:`LAYOUTS`, if that was inferred; else empty.
      bands: how files become images.
      groups: the group of each path, if a table states them; else empty.
    """

    root: Path
    shown: Path
    files: dict[str, list[tuple[str, int]]]
    classes: tuple[str, ...]
    coarse_classes: tuple[str, ...] | None
    fine_to_coarse: tuple[int, ...] | None
    passed: tuple[Passed, ...] = ()
    empty: tuple[str, ...] = ()
    layout: str = ""
    bands: Bands = PLAIN
    groups: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def signature(self) -> str:
        """Returns a digest of names, sizes and dates, which is cheap and changes with any file."""
        names = (self.classes, self.coarse_classes, self.fine_to_coarse)
        digest = hashlib.sha256(repr(names).encode())
        if self.bands != PLAIN:  # sets from before there were bands keep their digest
            digest.update(repr(tuple(self.bands)).encode())
        if self.groups:
            digest.update(repr(sorted(self.groups.items())).encode())
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
                for further in self.bands.files_beside(self.root / path):
                    more = further.stat()
                    facts = (further.name, more.st_size, more.st_mtime_ns, more.st_ctime_ns)
                    digest.update(repr(facts).encode())
        return digest.hexdigest()


class Found(NamedTuple):
    """Image files with their classes.

    Attributes:
      root: the folder that their paths are relative to.
      shown: its path as the user knows it; of an unpacked archive, that of the archive.
      listed: the files, at least one, sorted by path.
      passed: skipped files, by kind; their paths are relative to the folder that was searched.
      assumed: how unusual folders were read, such as ``"chips/<class>/<split>/*"``; else empty.
      empty: see :class:`ImageFolder`.
      layout: see :class:`ImageFolder`.
      bands: see :class:`ImageFolder`.
    """

    root: Path
    shown: Path
    listed: Sequence[Listed]
    passed: tuple[Passed, ...]
    assumed: str = ""
    empty: tuple[str, ...] = ()
    layout: str = ""
    bands: Bands = PLAIN


def find(
    root: Path,
    *,
    layout: str = "",
    table_name: str = "",
    inside: bool = False,
    bands: Bands = PLAIN,
) -> Found:
    """Finds the images below a folder.

    Args:
      root: a folder with one of the :data:`~jaxatr.data.sources.image_folder.layouts.LAYOUTS`, or
        with a table. The layout may be in a folder, or several, that holds nothing else. Links are
        followed (:func:`~jaxatr.data.files_below.iterate_visible`).
      layout: the name of a layout; empty to infer it.
      table_name: path below ``root`` of a table, which replaces the folders' names.
      inside: the folder is an unpacked archive: refuse paths in the table that leave it, and do not
        mention one folder around all others.
      bands: how files become images.

    Raises:
      ValueError: the folder is missing or empty, an image is misplaced, or the table cannot be
        used.
    """
    if not root.exists():
        raise MissingFileError(f"there is no folder or file {root}")
    if not root.is_dir():
        raise ValueError(
            f"{root} is a file, but neither an archive ({', '.join(archive.SUFFIXES)}) nor a table "
            f"({', '.join(table.SUFFIXES)})"
        )
    check_layout(layout)
    if table_name:
        if layout:
            raise ValueError("layout: not allowed together with a table: leave one of them out")
        if not table.is_table(Path(table_name)):
            raise ValueError(
                f"table: got {table_name!r}, wanted one of {', '.join(table.SUFFIXES)}"
            )
        if not (root / table_name).is_file():
            if not (_single_folder(root) / table_name).is_file():
                raise MissingFileError(f"table: there is no file {table_name!r} in {root}")
            root = _single_folder(root)
        listed = sorted(table.read_table(root / table_name, inside=inside))
        if not listed:
            raise ValueError(f"{root / table_name}: no images are listed")
        folder = (root / table_name).parent
        return Found(folder, folder, listed, (), bands=bands)
    entries = list(_entries(root))
    paths = bands.firsts([path for path, kind in entries if not kind])
    outer = wrapper(paths, layout) if paths else PurePosixPath()
    passed = _by_kind(one for one in entries if one[1] and one[0] != outer / _COARSE)
    if not paths:
        others = ", ".join(f"{len(one.paths)} {describe_kind(one.kind)}" for one in passed)
        raise ValueError(
            f"no images in {root}{f' ({others})' if others else ''}; looked for {WANTED}"
        )
    if outer.parts:
        paths = [path.relative_to(outer) for path in paths]
    listed, found = arranged(root / outer, paths, layout, WANTED)
    assumed = ""
    # An archive commonly holds one folder, which is not worth a line.
    if len(outer.parts) > inside or found.endswith("/split") and not layout:
        assumed = "/".join([*outer.parts, *(f"<{level}>" for level in LAYOUTS[found]), "*"])
    empty = tuple(_empty(root / outer, paths, len(LAYOUTS[found])))
    inferred = "" if layout else found
    return Found(root / outer, root / outer, listed, passed, assumed, empty, inferred, bands)


def divided(found: Found, test_fraction: float) -> ImageFolder:
    """Numbers the classes of images, and divides the images into splits.

    Args:
      found: the images.
      test_fraction: without splits, the share of each class that becomes the test split, rounded,
        but at least one image of a class with two or more. Images are chosen by the SHA-256 of
        their paths, hence equally on every machine. Groups stay whole, so that the shares are
        about this large, and larger for classes of few groups.

    Raises:
      ValueError: there is only one class, ``coarse.json`` does not fit, or all groups of a class
        would be in one split.
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
    groups = {one.path: one.group for one in listed if one.group is not None}
    further = found.passed, found.empty, found.layout, found.bands, groups
    return ImageFolder(root, found.shown, files, classes, *hierarchy, *further)


def _empty(root: Path, paths: Sequence[PurePosixPath], depth: int) -> Iterator[str]:
    """Yields the outermost folders without images that are at most ``depth`` levels below."""
    full = {parent for path in paths for parent in path.parents}
    waiting = [PurePosixPath()]
    while waiting:
        folder = waiting.pop()
        with os.scandir(root / folder) as entries:
            names = sorted(one.name for one in entries if one.is_dir() and not is_hidden(one.name))
        for below in (folder / name for name in names):
            if below not in full:
                yield as_utf8(str(below))
            elif len(below.parts) < depth:
                waiting.append(below)


def _entries(root: Path) -> Iterator[tuple[PurePosixPath, str]]:
    """Yields the path of each file below a folder, sorted, and its kind (empty for an image)."""
    for path, passed, error in iterate_visible(root):
        if error is not None:
            raise error
        suffix = path.suffix.lower()
        known = suffix in SUFFIXES or envi.is_part(root / path)
        yield path, passed or ("" if known else suffix or "without a suffix")


def _single_folder(root: Path) -> Path:
    """Returns the only entry of a folder if it is a folder without a split's name, else ``root``.

    Archives often have such a folder around the table and the images.
    """
    entries = [entry for entry in root.iterdir() if not is_hidden(entry.name)]
    if len(entries) == 1 and entries[0].is_dir() and not is_usual(entries[0].name):
        return entries[0]
    return root


def _by_kind(others: Iterable[tuple[PurePosixPath, str]]) -> tuple[Passed, ...]:
    """Returns skipped files, sorted, by kind, the most frequent kind first."""
    kinds: dict[str, list[str]] = {}
    for path, kind in others:
        kinds.setdefault(kind, []).append(str(path))
    passed = [Passed(kind, tuple(paths)) for kind, paths in kinds.items()]
    return tuple(sorted(passed, key=lambda one: (-len(one.paths), one.kind)))


def _drawn(listed: Sequence[Listed], fraction: float) -> frozenset[str]:
    """Draws the test split: a share of each class."""
    if listed[0].group is not None:
        return _drawn_groups(listed, fraction)
    members: dict[str, list[str]] = {}
    for one in listed:
        members.setdefault(one.label, []).append(one.path)
    test: set[str] = set()
    for group in members.values():
        drawn = sorted(group, key=lambda path: hashlib.sha256(os.fsencode(path)).digest())
        wanted = max(1, round(fraction * len(group)))
        test.update(drawn[: min(wanted, len(group) - 1)])
    return frozenset(test)


def _drawn_groups(listed: Sequence[Listed], fraction: float) -> frozenset[str]:
    """Draws the smaller split from whole groups: a fold, and a small group of each class it lacks.

    Returns:
      The paths of the test split.
    """
    classes = sorted({one.label for one in listed})
    labels = np.array([classes.index(one.label) for one in listed])
    groups = np.array([str(one.group) for one in listed])
    count = round(1 / min(fraction, 1 - fraction))
    small = folds.stratified_folds(labels, count, 0, groups=groups) == 0
    for number, name in enumerate(classes):
        if not small[labels == number].any():
            small = _with_smallest_group(small, labels, groups, number)
        if len(set(small[labels == number])) < 2:
            raise ValueError(
                f"group: the groups of {name!r} cannot be divided into training and test: give "
                "every class several groups, or a column of splits"
            )
    test = small if fraction <= 0.5 else ~small
    return frozenset(one.path for one, drawn in zip(listed, test, strict=True) if drawn)


def _with_smallest_group(
    small: Bool[np.ndarray, " n"],
    labels: Int[np.ndarray, " n"],
    groups: Shaped[np.ndarray, " n"],
    number: int,
) -> Bool[np.ndarray, " n"]:
    """Adds the smallest group of a class to a split that leaves every class some of the other."""
    names, sizes = np.unique(groups, return_counts=True)
    for name in names[np.argsort(sizes, kind="stable")]:
        more = small | (groups == name)
        enough = len(np.unique(labels[~more])) == len(np.unique(labels[~small]))
        if enough and more[labels == number].any():
            return more
    return small


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
        coarse = json.loads(read_regular(path))
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(coarse, dict) or not all(isinstance(v, str) for v in coarse.values()):
        raise ValueError(f'{path}: expected {{"fine class": "coarse class", …}}')
    coarse = {class_name(name): class_name(group) for name, group in coarse.items()}
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
