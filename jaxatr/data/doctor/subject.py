"""Labelled images to check, from a folder or a prepared data set."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from jaxatr.data.dataset import Dataset
from jaxatr.data.doctor.marks import Marks, marks
from jaxatr.data.sources import image_folder
from jaxatr.data.sources.image_folder.folder import ImageFolder
from jaxatr.files import read_regular
from jaxatr.typing import Int, Shaped


@dataclasses.dataclass(frozen=True)
class Subject:
    """A numbered set of labelled images.

    Attributes:
      name: name of the set, for reports.
      classes: class names.
      splits: split names.
      labels: ``[n]``, the number of each image's class.
      parts: ``[n]``, the number of each image's split.
      names: ``[n]``, paths or other names of the images.
      read: returns the image ``[h, w, c]`` of a number; raises ``ValueError`` if it cannot be read.
      unreadable: (file, reason) of files known to be damaged, which are not among the images.
      passed: lines about skipped files.
      marks: returns what the file of a number says beside its pixels; None without files.
      empty: paths of folders without images where those of classes are.
      layout: how folders were read, if that was inferred; empty if it was given.
    """

    name: str
    classes: tuple[str, ...]
    splits: tuple[str, ...]
    labels: Int[np.ndarray, " n"]
    parts: Int[np.ndarray, " n"]
    names: Sequence[str]
    read: Callable[[int], Shaped[np.ndarray, "h w c"]]
    unreadable: tuple[tuple[str, str], ...] = ()
    passed: tuple[str, ...] = ()
    marks: Callable[[int], Marks] | None = None
    empty: tuple[str, ...] = ()
    layout: str = ""

    def __len__(self) -> int:
        """Returns the number of images."""
        return len(self.labels)


def of_folder(folder: ImageFolder, name: str) -> Subject:
    """Creates a subject from a folder's files without reading them."""
    splits = tuple(sorted(folder.files))
    listed = [
        (path, label, part)
        for part, split in enumerate(splits)
        for path, label in folder.files[split]
    ]
    return Subject(
        name=name,
        classes=folder.classes,
        splits=splits,
        labels=np.array([label for _, label, _ in listed], np.int32),
        parts=np.array([part for *_, part in listed], np.int32),
        names=[path for path, *_ in listed],
        read=lambda number: image_folder.read(folder, listed[number][0]),
        passed=tuple(image_folder.passed_over(folder).lines()),
        marks=lambda number: marks(read_regular(folder.root / listed[number][0])),
        empty=folder.empty,
        layout=folder.layout,
    )


def of_dataset(dataset: Dataset) -> Subject:
    """Creates a subject from the examples of a prepared set.

    Args:
      dataset: the set; files left out of it as damaged are listed as unreadable.
    """
    splits = tuple(dataset.splits)
    sizes = [len(split) for split in dataset.splits.values()]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    parts = np.repeat(np.arange(len(splits), dtype=np.int32), sizes)
    names: list[str] = []
    for name, split in dataset.splits.items():
        column = next((key for key in ("path", "file", "clip") if key in split.columns), "id")
        where = f"{name} " if column == "id" else ""
        names += [f"{where}{value}" for value in split.columns[column].tolist()]

    def read(number: int) -> np.ndarray:
        part = int(parts[number])
        return dataset.splits[splits[part]].image(number - int(starts[part]))

    return Subject(
        name=dataset.name,
        classes=dataset.classes,
        splits=splits,
        labels=np.concatenate([split.columns["label"] for split in dataset.splits.values()]),
        parts=parts,
        names=names,
        read=read,
        unreadable=dataset.skipped,
        passed=dataset.notes,
    )
