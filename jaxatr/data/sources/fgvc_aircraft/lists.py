"""Reader of FGVC-Aircraft's lists (Maji et al. 2013): images, classes at three levels, boxes."""

import dataclasses
import re
from pathlib import Path
from typing import NamedTuple

from jaxatr.resolve import nearest

# From fine to coarse, each with the file that lists the level's names.
LEVELS = {
    "variant": "variants.txt",
    "family": "families.txt",
    "manufacturer": "manufacturers.txt",
}
_SPLITS = {"train": "train", "val": "validation", "test": "test"}  # name in the files to name here
_LAYOUT = "images/, images_variant_train.txt, variants.txt … of fgvc-aircraft-2013b/data"


class Photograph(NamedTuple):
    """A listed image.

    Attributes:
      path: relative to the data folder.
      label: number of its class.
      box: xmin, ymin, xmax, ymax as in the file: counted from 1, ends inclusive.
    """

    path: str
    label: int
    box: tuple[int, int, int, int]


@dataclasses.dataclass(frozen=True)
class Lists:
    """The content of the lists at one level, and optionally a coarser one.

    Attributes:
      classes: names that have images, in the order of the level's list.
      coarse_classes: likewise for the coarser level, or None.
      fine_to_coarse: the coarse class of each class, or None.
      photographs: split names to images, sorted by number.
    """

    classes: list[str]
    coarse_classes: list[str] | None
    fine_to_coarse: list[int] | None
    photographs: dict[str, list[Photograph]]


def data_folder(source: Path) -> Path:
    """Returns the folder of the images and their lists: ``source`` or its subfolder ``data``.

    Raises:
      ValueError: neither holds the lists.
    """
    for folder in (source, source / "data"):
        if (folder / LEVELS["variant"]).is_file():
            return folder
    raise ValueError(f"{source} is not FGVC-Aircraft; looked for {_LAYOUT}, there and in data")


def read_lists(root: Path, level: str, coarse: str | None) -> Lists:
    """Reads the lists in :func:`data_folder`.

    Args:
      root: the folder.
      level: level of the fine classes, one of :data:`LEVELS`.
      coarse: a coarser level, or None.

    Raises:
      ValueError: a list is missing, a line is malformed, or the lists contradict each other.
    """
    fine = _labels(root, level)
    classes = _names(root, level, fine)
    photographs = _photographs(root, fine, classes)
    if coarse is None:
        return Lists(classes, None, None, photographs)
    above = _labels(root, coarse)
    coarse_classes = _names(root, coarse, above)
    parents = _parents(root, fine, above)
    fine_to_coarse = [coarse_classes.index(parents[name]) for name in classes]
    return Lists(classes, coarse_classes, fine_to_coarse, photographs)


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; looked for {_LAYOUT}") from error
    return [line.strip() for line in lines if line.strip()]


def _labels(root: Path, level: str) -> dict[str, dict[str, str]]:
    """Returns the class names at a level: split to image number to name."""
    found: dict[str, dict[str, str]] = {}
    seen: dict[str, str] = {}
    for in_file, split in _SPLITS.items():
        path = root / f"images_{level}_{in_file}.txt"
        found[split] = {}
        for line in _lines(path):
            number, _, label = line.partition(" ")
            if not re.fullmatch("[0-9]+", number) or not label.strip():
                raise ValueError(f"{path}: {line!r} is not an image's number and its {level}")
            if number in seen:
                raise ValueError(f"{path}: image {number} is already in the {seen[number]} split")
            seen[number] = split
            found[split][number] = label.strip()
    return found


def _names(root: Path, level: str, labels: dict[str, dict[str, str]]) -> list[str]:
    """Returns the level's names that have images, in the order of the list."""
    path = root / LEVELS[level]
    listed = _lines(path)
    there = {label for split in labels.values() for label in split.values()}
    if unknown := sorted(there.difference(listed)):
        raise ValueError(f"{path} has no {level} {unknown[0]!r}{nearest(unknown[0], listed)}")
    return [name for name in dict.fromkeys(listed) if name in there]


def _parents(
    root: Path, fine: dict[str, dict[str, str]], coarse: dict[str, dict[str, str]]
) -> dict[str, str]:
    """Returns the coarse class of each fine class; all of a class's images must agree."""
    parents: dict[str, str] = {}
    for split, labels in fine.items():
        if odd := sorted(labels.keys() ^ coarse[split].keys()):
            raise ValueError(
                f"{root}: the two levels' lists of the {split} split differ in their images: "
                f"{odd[0]} is in only one of them ({len(odd)} such)"
            )
        for number, label in labels.items():
            parent = coarse[split][number]
            if parents.setdefault(label, parent) != parent:
                raise ValueError(
                    f"{root}: {label!r} belongs to {parents[label]!r}, but by image {number} to "
                    f"{parent!r}"
                )
    return parents


def _photographs(
    root: Path, labels: dict[str, dict[str, str]], names: list[str]
) -> dict[str, list[Photograph]]:
    path, boxes = root / "images_box.txt", {}
    for line in _lines(path):
        if not re.fullmatch("[0-9]+( +[0-9]+){4}", line):
            raise ValueError(f"{path}: {line!r} is not an image's number, xmin, ymin, xmax, ymax")
        number, *corners = line.split()
        boxes[number] = tuple(map(int, corners))
    numbers = {number for split in labels.values() for number in split}
    if without := sorted(numbers.difference(boxes)):
        raise ValueError(f"{path} has no box for image {without[0]} ({len(without)} such)")
    return {
        split: [
            Photograph(f"images/{number}.jpg", names.index(label), boxes[number])
            for number, label in sorted(members.items())
        ]
        for split, members in labels.items()
    }
