"""Class folders of image files, and what is in them."""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from jaxatr.resolve import nearest

SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
SPLIT_NAMES = ("train", "test", "validation", "val", "valid")
WANTED = (
    f"<split>/<class>/*.{{{','.join(suffix[1:] for suffix in SUFFIXES)}}}, "
    "or <class>/* with no split folders"
)


@dataclasses.dataclass(frozen=True)
class ImageFolder:
    """The images of a folder, none of which has been opened.

    Attributes:
      root: the folder.
      files: split to its (path relative to ``root``, label), sorted by path.
      classes: names, sorted; a class counts if any split has it.
      coarse_classes: names, sorted, or None without a ``coarse.json``.
      fine_to_coarse: the coarse class of each class, or None.
    """

    root: Path
    files: dict[str, list[tuple[str, int]]]
    classes: tuple[str, ...]
    coarse_classes: tuple[str, ...] | None
    fine_to_coarse: tuple[int, ...] | None

    def signature(self) -> str:
        """Returns a digest of names, sizes and dates: cheap, and changed when a file changes."""
        names = (self.classes, self.coarse_classes, self.fine_to_coarse)
        digest = hashlib.sha256(repr(names).encode())
        for split, files in sorted(self.files.items()):
            for path, label in files:
                status = (self.root / path).stat()
                # Copying may set the date of writing back; nothing sets that of the inode.
                dates = (status.st_mtime_ns, status.st_ctime_ns)
                facts = (split, path, label, status.st_size, *dates)
                digest.update(repr(facts).encode())
        return digest.hexdigest()


def scan(root: Path, *, test_fraction: float = 0.2) -> ImageFolder:
    """Finds the images below a folder.

    Args:
      root: holds ``<split>/<class>/<image>`` or ``<class>/<image>``.
      test_fraction: without split folders, the part of each class that becomes the test split,
        rounded, at least one image where the class has two. Which images that are follows from the
        SHA-256 of their paths, so it is the same everywhere.

    Raises:
      ValueError: the folder is missing or empty, has one class, mixes both layouts, or holds a link
        that leads out of it; or ``coarse.json`` does not fit.
    """
    if not root.is_dir():
        raise ValueError(f"there is no folder {root}; looked for {WANTED}")
    if not 0 < test_fraction < 1:
        raise ValueError(f"test_fraction must be between 0 and 1, got {test_fraction}")
    paths = sorted(_images(root.resolve(), root, ()))
    if not paths:
        raise ValueError(f"no images in {root}; looked for {WANTED}")
    depths = {len(path.parts): path for path in paths}
    if set(depths) not in ({2}, {3}):
        odd = next(path for depth, path in sorted(depths.items()) if depth != 3)
        raise ValueError(f"{root / odd} is out of place; looked for {WANTED}")
    classes = tuple(sorted({path.parts[-2] for path in paths}))
    if len(classes) == 1:
        raise ValueError(f"{root} has one class, {classes[0]!r}; looked for {WANTED}")
    splits = _by_folder(paths, root) if 3 in depths else _by_draw(paths, test_fraction)
    files = {
        split: [(str(path), classes.index(path.parts[-2])) for path in members]
        for split, members in splits.items()
    }
    return ImageFolder(root, files, classes, *_hierarchy(root / "coarse.json", classes))


def single_folder(root: Path) -> Path:
    """Returns the one folder that an archive wraps its class or split folders in, else ``root``."""
    entries = [entry for entry in root.iterdir() if not _is_hidden(entry.name)]
    if len(entries) == 1 and entries[0].is_dir() and entries[0].name.lower() not in SPLIT_NAMES:
        return entries[0]
    return root


def _images(top: Path, folder: Path, parts: tuple[str, ...]) -> Iterator[PurePosixPath]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if _is_hidden(entry.name):
                continue
            if entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(top):
                raise ValueError(f"{entry.path} is a link that leads out of the data folder")
            # A data set has three levels: the further ones are searched to say what is out of
            # place, and end somewhere because links may go round in a circle.
            if entry.is_dir() and len(parts) < 6:
                yield from _images(top, Path(entry.path), (*parts, entry.name))
            elif entry.is_file() and entry.name.lower().endswith(SUFFIXES):
                yield PurePosixPath(*parts, entry.name)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _by_folder(paths: list[PurePosixPath], root: Path) -> dict[str, list[PurePosixPath]]:
    splits: dict[str, list[PurePosixPath]] = {}
    for path in paths:
        splits.setdefault(path.parts[0].lower(), []).append(path)
    for name in splits:
        if not re.fullmatch(r"\w+", name):
            raise ValueError(f"{root / name}: a split's name is letters, digits and underscores")
    return splits


def _by_draw(paths: list[PurePosixPath], fraction: float) -> dict[str, list[PurePosixPath]]:
    members: dict[str, list[PurePosixPath]] = {}
    for path in paths:
        members.setdefault(path.parts[0], []).append(path)
    test: set[PurePosixPath] = set()
    for group in members.values():
        drawn = sorted(group, key=lambda path: hashlib.sha256(str(path).encode()).digest())
        wanted = max(1, round(fraction * len(group)))
        test.update(drawn[: min(wanted, len(group) - 1)])
    return {"train": [p for p in paths if p not in test], "test": [p for p in paths if p in test]}


def _hierarchy(
    path: Path, classes: tuple[str, ...]
) -> tuple[tuple[str, ...] | None, tuple[int, ...] | None]:
    try:
        coarse = json.loads(path.read_text())
    except FileNotFoundError:
        return None, None
    except ValueError as error:
        raise ValueError(f"{path}: not readable as JSON ({error})") from error
    if not isinstance(coarse, dict) or not all(isinstance(v, str) for v in coarse.values()):
        raise ValueError(f'{path}: expected {{"fine class": "coarse class", …}}')
    if missing := [name for name in classes if name not in coarse]:
        raise ValueError(f"{path}: no coarse class for {', '.join(missing)}")
    if unknown := [name for name in coarse if name not in classes]:
        raise ValueError(f"{path}: there is no class {unknown[0]!r}{nearest(unknown[0], classes)}")
    names = tuple(sorted(set(coarse.values())))
    return names, tuple(names.index(coarse[name]) for name in classes)
