"""Labelled images of a table, added to a split of a data set."""

import dataclasses
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from jaxatr.data.bands import Bands, counted
from jaxatr.data.combined_splits import concatenated
from jaxatr.data.dataset import SCENE_ARRAYS, SHAPE_COLUMNS, Dataset, Split
from jaxatr.data.image_paths import TABLES
from jaxatr.data.tracks import TRACK

UNKNOWN = "unknown"
"""The label of images that are of no class; they are left out unless the set has this class."""


class _Files:
    """Records of image files, read when they are asked for."""

    def __init__(self, paths: list[Path], bands: Bands):
        self._paths, self._bands = paths, bands

    def __getitem__(self, index: int) -> Mapping[str, np.ndarray]:
        return {"image": self._bands.read(self._paths[index])}


def added(dataset: Dataset, table: str | os.PathLike, split: str = "train") -> Dataset:
    """Returns a data set with the images of a table in one of its splits; no file is changed.

    Labels that the set does not have become further classes. Of the split's columns, those remain
    that images of a table have. An image whose path in the table is also one of the set's, below
    another folder, is named by its whole path.

    Args:
      dataset: the data set.
      table: a CSV or Parquet file with the columns ``path``, relative to its folder, and ``label``.
      split: name of the split.

    Raises:
      ValueError: the table or an image cannot be read, an image is in the set already or has
        another dtype or number of bands than the set, its group is in another split, the set has no
        such split or not single images, or a new class would need a coarse one.
    """
    from jaxatr.data.sources.image_folder import labelled_truth  # imported when it is asked for

    if not str(table).lower().endswith(TABLES):
        raise ValueError(f"added: got {table}, wanted a table, ending in {' or '.join(TABLES)}")
    if split not in dataset.splits:
        raise ValueError(f"added: {dataset.name} has no split {split!r}")
    before = dataset.splits[split]
    if TRACK in before.columns or (len(before) and {*before.records[0]} & {*SCENE_ARRAYS}):
        raise ValueError(f"added: got {dataset.name}, wanted a set of single images")
    found = labelled_truth(Path(table), Path(), dataset.bands)
    left_out = {UNKNOWN} - {*dataset.classes}
    listed = [one for one in found.listed if one.label not in left_out]
    new = sorted({one.label for one in listed} - {*dataset.classes})
    if new and dataset.coarse_classes is not None:
        raise ValueError(f"added: {', '.join(new)} has no coarse class in {dataset.name}")
    if not listed:
        return dataset
    classes = (*dataset.classes, *new)
    files = [found.root / one.path for one in listed]
    sizes, content = _facts(files, before, dataset)
    taken = {
        str(path): (one, row)
        for one in dataset.splits.values()
        for row, path in enumerate(one.columns.get("path", ()))
    }
    for file in files:
        _check_new(file, taken, dataset)
    names = [
        str(file.absolute()) if one.path in taken else one.path
        for one, file in zip(listed, files, strict=True)
    ]
    labels = [classes.index(one.label) for one in listed]
    content.update(repr([dataset.fingerprint, [one.label for one in listed]]).encode())
    highest = max(int(one.columns["id"].max(initial=-1)) for one in dataset.splits.values())
    columns = {
        "label": np.array(labels, before.columns["label"].dtype),
        "id": highest + 1 + np.arange(len(listed)).astype(before.columns["id"].dtype),
        "path": np.array(names),
        **dict(zip(SHAPE_COLUMNS, sizes.T, strict=True)),
    }
    if dataset.fine_to_coarse is not None:
        columns["coarse"] = np.array(dataset.fine_to_coarse)[labels]
    if "group" in before.columns:  # an image of no group is one of its own
        own = zip(listed, names, strict=True)
        columns["group"] = np.array([one.group or name for one, name in own])
        _check_groups({*columns["group"].tolist()}, before, dataset)
    more = Split(split, _Files(files, dataset.bands), columns, classes, before.dtype)
    splits = {
        name: Split(name, one.records, one.columns, classes, one.dtype)
        for name, one in dataset.splits.items()
    }
    both = concatenated([splits[split], more])
    splits[split] = Split(split, both.records, both.columns, classes, both.dtype)
    return dataclasses.replace(
        dataset, classes=classes, splits=splits, fingerprint=content.hexdigest()
    )


def _check_new(file: Path, taken: Mapping[str, tuple[Split, int]], dataset: Dataset) -> None:
    """Checks that an image is not one of the set's, by the end of its path and by its pixels.

    Args:
      file: the image.
      taken: the split and the row of each path of the set.
      dataset: the set.

    Raises:
      ValueError: it would be trained on twice, or trained on and tested.
    """
    parts = file.absolute().parts
    for name in (str(file.absolute()), *("/".join(parts[at:]) for at in range(1, len(parts)))):
        if name in taken:
            split, row = taken[name]
            if np.array_equal(dataset.bands.read(file), split.image(row)):
                raise ValueError(
                    f"added: {file} is already in {dataset.name}, as {name} of its split "
                    f"{split.name!r}: take it out of the table"
                )


def _check_groups(groups: set[str], split: Split, dataset: Dataset) -> None:
    """Checks that no group, such as a flight, is divided by its new images.

    Raises:
      ValueError: a group is only in another split of the set.
    """
    new = groups - {*map(str, split.columns["group"].tolist())}
    for name, other in dataset.splits.items():
        if both := new & {*map(str, other.columns["group"].tolist())}:
            raise ValueError(
                f"added: the group {min(both)!r} is in the split {name!r} of {dataset.name}, and "
                "chips of one group stay in one split: take it out of the table"
            )


def _facts(
    files: list[Path], before: Split, dataset: Dataset
) -> tuple[np.ndarray, "hashlib._Hash"]:
    """Reads images once; returns their shapes ``[n, 3]`` and a digest of their pixels.

    Raises:
      ValueError: an image does not fit the others.
    """
    bands = {*np.unique(before.columns["channels"]).tolist()}
    accepted = bands | ({1, 3} if bands <= {1, 3} else set())  # gray and RGB are converted
    sizes, content = [], hashlib.sha256()
    for file in files:
        image = dataset.bands.read(file)
        if image.dtype != before.dtype:
            raise ValueError(
                f"added: {file} is {image.dtype}, wanted {before.dtype} like {dataset.name}"
            )
        if image.shape[2] not in accepted:
            raise ValueError(
                f"added: {file} has {counted(image.shape[2])}, wanted "
                f"{' or '.join(map(str, sorted(accepted)))} like {dataset.name}"
            )
        sizes.append(image.shape)
        content.update(repr(image.shape).encode() + image.tobytes())
    return np.array(sizes), content
