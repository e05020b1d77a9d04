"""Folders of chips of the tasks: parts of public data sets, drawn by a seed.

A folder has the layout ``<split>/<class>/<file>``. It is written once; its name says what is in it.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

Rename = Callable[[str], str]


class Subset(NamedTuple):
    """A part of a data set of class folders.

    Attributes:
      name: name of its folder.
      source: folder below the data folder.
      train: largest number of training chips of a class.
      test: largest number of test chips of a class.
      classes: names of the classes; empty for all.
      coarse: whether classes are those of ``coarse.json``.
    """

    name: str
    source: str
    train: int
    test: int
    classes: tuple[str, ...] = ()
    coarse: bool = False

    def write(self, data: Path, folder: Path) -> Path:
        """Writes the folder, unless it exists; returns its path.

        Args:
          data: folder of the data sets.
          folder: folder that contains the tasks' folders of chips.
        """
        made = folder / self.name
        if made.exists():
            return made
        root = data / self.source
        coarse = json.loads((root / "coarse.json").read_text()) if self.coarse else {}
        unfinished = folder / f"{self.name}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        for split, most in (("train", self.train), ("test", self.test)):
            files: dict[str, list[Path]] = {}
            for one in sorted((root / split).iterdir()):
                name = coarse.get(one.name, one.name)
                if not self.classes or name in self.classes:
                    files.setdefault(name, []).extend(sorted(one.iterdir()))
            for number, (name, found) in enumerate(files.items()):
                place = unfinished / split / name
                place.mkdir(parents=True)
                for path in _drawn(found, most, number):
                    shutil.copy(path, place / f"{path.parent.name}-{path.name}")
        unfinished.rename(made)
        return made


class Boxes(NamedTuple):
    """The boxes of HIT-UAV's thermal images as square chips, a fifth larger than the box.

    The images of one split are frames of the same flights, so that chips resemble each other; its
    training and test images are used as they are divided.

    Attributes:
      name: name of the folder.
      train: largest number of training chips of a class.
      test: largest number of test chips of a class.
      classes: names of the classes.
      size: rows and columns of a chip.
    """

    name: str
    train: int
    test: int
    classes: tuple[str, ...] = ("Person", "Car", "Bicycle")
    size: int = 32

    def write(self, data: Path, folder: Path) -> Path:
        """Writes the folder, unless it exists; returns its path."""
        made = folder / self.name
        if made.exists():
            return made
        unfinished = folder / f"{self.name}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        for split, most in (("train", self.train), ("test", self.test)):
            root = data / "hituav"
            listed = json.loads((root / f"{split}.json").read_text())
            names = {one["id"]: one["name"] for one in listed["categories"]}
            paths = {one["id"]: root / split / one["file_name"] for one in listed["images"]}
            for number, name in enumerate(self.classes):
                place = unfinished / split / name
                place.mkdir(parents=True)
                own = [one for one in listed["annotations"] if names[one["category_id"]] == name]
                own = [one for one in own if min(one["bbox"][2:]) >= 6]
                for one in _drawn(own, most, number):
                    with Image.open(paths[one["image_id"]]) as image:
                        chip = self._cut(image.convert("L"), one["bbox"])
                    chip.save(place / f"{one['id']}.png")
        unfinished.rename(made)
        return made

    def _cut(self, image: Image.Image, box: Sequence[float]) -> Image.Image:
        x, y, w, h = box
        half = 0.6 * max(w, h)
        middle = x + w / 2, y + h / 2
        edges = (middle[0] - half, middle[1] - half, middle[0] + half, middle[1] + half)
        return image.resize(
            (self.size, self.size), Image.Resampling.BILINEAR, box=_inside(edges, image)
        )


def _inside(edges: Sequence[float], image: Image.Image) -> tuple[float, float, float, float]:
    """Moves a square into the image."""
    left, top, right, bottom = edges
    across = max(0.0, -left) - max(0.0, right - image.width)
    down = max(0.0, -top) - max(0.0, bottom - image.height)
    return left + across, top + down, right + across, bottom + down


def folds(folder: Path, count: int) -> list[Path]:
    """Divides the training chips of a folder into folds, and writes a folder for each.

    In the folder of a fold, its chips are the test split, and all others the training split.

    Args:
      folder: folder of a task.
      count: number of folds.
    """
    made = []
    for fold in range(count):
        place = folder.with_name(f"{folder.name}-fold-{fold}")
        made.append(place)
        if place.exists():
            continue
        unfinished = place.with_name(f"{place.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        for number, one in enumerate(sorted((folder / "train").iterdir())):
            files = _drawn(sorted(one.iterdir()), None, number)
            for i, path in enumerate(files):
                split = "test" if i % count == fold else "train"
                target = unfinished / split / one.name
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target / path.name)
        unfinished.rename(place)
    return made


def _drawn(items: Iterable, most: int | None, seed: int) -> list:
    """Draws at most ``most`` of the items, always the same."""
    listed = list(items)
    order = np.random.default_rng(seed).permutation(len(listed))[:most]
    return [listed[i] for i in order]
