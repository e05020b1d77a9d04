"""Corrected labels of a data set, kept in a table beside it."""

import dataclasses
import hashlib
import json
import os
import unicodedata
from collections.abc import Set
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr.data.class_names import class_name
from jaxatr.data.dataset import SCENE_ARRAYS, Dataset, Split
from jaxatr.typing import Int

_COLUMNS = ("path", "label")
_PLACES = ("path", "file", "clip")  # columns of a split that name an example's file


class _Kept:
    """Some of the records of a split, in order."""

    def __init__(self, records: Any, rows: Int[np.ndarray, " n"]):
        self._records, self._rows = records, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Any:
        return self._records[int(self._rows[index])]


def corrected(dataset: Dataset, table: str | os.PathLike) -> Dataset:
    """Returns a data set with the labels of a table in place of its own; no file is changed.

    Args:
      dataset: the data set, whose examples name their files.
      table: a CSV or Parquet file with the columns ``path`` and ``label``; others are ignored. An
        empty label leaves the example out.

    Raises:
      ValueError: the table lacks a column, names a file or a class that the set does not have,
        gives a file two labels, or gives a scene with boxes one.
    """
    labels = _labels(Path(table))
    place = {class_name(name): number for number, name in enumerate(dataset.classes)}
    for path, label in labels.items():
        if label and class_name(label) not in place:
            listed = ", ".join(dataset.classes[:10])
            raise ValueError(f"{table}: {path} has the label {label!r}, wanted one of {listed}")
    parts = [one for one in dataset.splits.values() if len(one)]
    if any(labels.values()) and any({*one.records[0]} & {*SCENE_ARRAYS} for one in parts):
        raise ValueError(
            f"{table}: the labels of {dataset.name} are those of boxes: correct them in the file "
            "of the boxes; here, only an empty label is of use, which leaves a scene out"
        )
    places = files_of(dataset, table)
    found = {path for paths in places.values() for path in paths}
    labels = _as_named(labels, found, table)
    check_files(dataset.name, labels.keys(), found, table)
    splits = {}
    for name, split in dataset.splits.items():
        paths = places[name]
        given = split.columns["label"]
        own = [
            place[class_name(labels[path])] if labels.get(path) else int(label)
            for path, label in zip(paths, given, strict=True)
        ]
        kept = np.flatnonzero([labels.get(path) != "" for path in paths])
        columns = {**split.columns, "label": np.array(own, given.dtype)}
        if "coarse" in columns and dataset.fine_to_coarse is not None:
            columns["coarse"] = np.array(dataset.fine_to_coarse, columns["coarse"].dtype)[own]
        splits[name] = Split(
            split.name,
            _Kept(split.records, kept),
            {key: values[kept] for key, values in columns.items()},
            split.classes,
            split.dtype,
        )
    content = json.dumps([dataset.fingerprint, *sorted(labels.items())])
    digest = hashlib.sha256(content.encode()).hexdigest()
    return dataclasses.replace(dataset, splits=splits, fingerprint=digest)


def files_of(dataset: Dataset, table: str | os.PathLike) -> dict[str, list[str]]:
    """Returns the file of each example, by split.

    Raises:
      ValueError: the examples do not name their files; the message begins with ``table``, whose
        rows name some.
    """
    places: dict[str, list[str]] = {}
    for name, split in dataset.splits.items():
        column = next((one for one in _PLACES if one in split.columns), None)
        if column is None:
            raise ValueError(f"{table}: the examples of {dataset.name} do not name their files")
        places[name] = [str(path) for path in split.columns[column].tolist()]
    return places


def check_files(name: str, paths: Set[str], found: Set[str], table: str | os.PathLike) -> None:
    """Checks that a table names files of a data set.

    Args:
      name: the set's name in the message.
      paths: files that the table names.
      found: those of the set.
      table: the table.

    Raises:
      ValueError: the set has no such file.
    """
    if missing := sorted(paths - found):
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise ValueError(f"{table}: {name} has no {', '.join(missing[:3])}{more}")


def _as_named(labels: dict[str, str], paths: set[str], table: str | os.PathLike) -> dict[str, str]:
    """Returns the labels by the set's own paths.

    Their letters may have another Unicode form, and spaces around them count where the set has such
    a path.
    """
    of_form: dict[str, list[str]] = {}
    for path in paths:
        of_form.setdefault(unicodedata.normalize("NFC", path), []).append(path)
    named: dict[str, str] = {}
    for given, label in labels.items():
        path = given if given in paths else given.strip()
        alike = of_form.get(unicodedata.normalize("NFC", path), [])
        own = alike[0] if path not in paths and len(alike) == 1 else path
        if named.setdefault(own, label) != label:
            raise ValueError(f"{table}: {path} has two labels, {named[own]!r} and {label!r}")
    return named


def _labels(path: Path) -> dict[str, str]:
    """Reads the labels by path."""
    from jaxatr.data.sources.image_folder import table  # imported when it is asked for

    labels: dict[str, str] = {}
    for _, row in table.rows(path):
        if missing := [name for name in _COLUMNS if name not in row]:
            raise ValueError(f"{path}: no column {missing[0]!r}, got {', '.join(row)}")
        file, label = str(row["path"] or ""), table.text_in(row["label"])
        if labels.setdefault(file, label) != label:
            raise ValueError(f"{path}: {file} has two labels, {labels[file]!r} and {label!r}")
    return labels
