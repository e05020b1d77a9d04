"""Splits composed of several splits, or of a split and further images such as a generator's."""

import hashlib
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr.data.archive import check_unpacked
from jaxatr.data.chip import Chip
from jaxatr.data.class_names import class_name
from jaxatr.data.dataset import Split
from jaxatr.files import MissingFileError
from jaxatr.typing import Int, Shaped


def concatenated(splits: Sequence[Split]) -> Split:
    """Concatenates splits of one data set.

    For protocols that separate classes rather than splits. The result has the columns common to all
    of them, and a TFDS-style name such as ``"train+test"``.

    Args:
      splits: at least one; a single split is returned unchanged.
    """
    if len(splits) == 1:
        return splits[0]
    shared = [name for name in splits[0].columns if all(name in s.columns for s in splits)]
    columns = {name: np.concatenate([split.columns[name] for split in splits]) for name in shared}
    name = "+".join(split.name for split in splits)
    return Split(name, _RecordsOfSplits(splits), columns, splits[0].classes, splits[0].dtype)


class _RecordsOfSplits:
    """Records of several splits, numbered consecutively."""

    def __init__(self, splits: Sequence[Split]):
        self._splits = splits
        self._ends = np.cumsum([len(split) for split in splits])

    def __getitem__(self, index: int) -> dict[str, Any]:
        which = int(np.searchsorted(self._ends, index, side="right"))
        before = int(self._ends[which - 1]) if which else 0
        return self._splits[which][index - before]


def read_images(path: str | os.PathLike) -> tuple[Shaped[np.ndarray, "m h w c"], str]:
    """Reads the array ``images`` of an ``.npz`` file, and returns it with its SHA-256.

    Raises:
      ValueError: the file does not exist, or has no array ``images`` of shape ``[m, h, w, c]``.
    """
    if not Path(path).is_file():
        raise MissingFileError(f"{path}: there is no such file")
    try:
        check_unpacked(path)
        arrays = np.load(path)
        if isinstance(arrays, np.ndarray):
            raise ValueError("a single array, wanted an .npz file")
        with arrays:
            images = np.asarray(arrays["images"])
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: cannot read an array 'images' from it ({error})") from error
    if images.ndim != 4 or not images.size:
        raise ValueError(
            f"{path}: got images of shape {images.shape}, wanted [m, h, w, c] with m > 0"
        )
    content = np.ascontiguousarray(images)
    digest = hashlib.sha256(f"{content.shape} {content.dtype.str}".encode())
    digest.update(content.tobytes())
    return images, digest.hexdigest()


def read_names(path: str | os.PathLike, count: int) -> list[str]:
    """Reads the array ``names`` of an ``.npz`` file of images, one name per image.

    Raises:
      ValueError: the array is missing, or its length is not ``count``.
    """
    with np.load(path) as arrays:
        names = arrays["names"].tolist() if "names" in arrays else []
    if len(names) != count or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path}: wanted an array 'names' with a name for each of {count} images")
    return [class_name(name) for name in names]


def read_rounds(path: str | os.PathLike, count: int) -> Int[np.ndarray, " m"]:
    """Reads the array ``rounds`` of an ``.npz`` file of images: the training that each came with.

    Without it, all came with the first, 0.

    Raises:
      ValueError: its length is not ``count``.
    """
    with np.load(path) as arrays:
        rounds = np.asarray(arrays["rounds"] if "rounds" in arrays else np.zeros(count, np.int32))
    if rounds.shape != (count,):
        raise ValueError(
            f"{path}: wanted an array 'rounds' with a number for each of {count} images"
        )
    return rounds


def chips_and_images(
    split: Split, indices: Int[np.ndarray, " n"], chip: Chip, images: Shaped[np.ndarray, "m h w c"]
) -> Split:
    """Returns a split of some examples' chips, followed by further images.

    Its columns are ``id`` (for the images, counted on from the split's highest), ``label`` (-1 for
    the images) and those of the shape. All images are chips, so no geometry remains to be applied.

    Args:
      split: the split to take examples from.
      indices: ``[n]``, numbers of the examples.
      chip: the examples' geometry.
      images: ``[m, h, w, c]``, of the chips' shape and dtype.
    """
    shape = split.chip_shape(indices, chip)
    count, ids = len(images), split.columns["id"]
    columns = {
        "id": np.concatenate([ids[indices], ids.max() + 1 + np.arange(count)]).astype(ids.dtype),
        "label": np.concatenate([split.columns["label"][indices], np.full(count, -1)]),
        **{
            name: np.full(len(indices) + count, side)
            for name, side in zip(("height", "width", "channels"), shape, strict=True)
        },
    }
    records = _ChipsAndImages(split, indices, chip, images)
    return Split(f"{split.name} and images", records, columns, split.classes, split.dtype)


class _ChipsAndImages:
    """Records: the chips of a split's examples, then further images."""

    def __init__(self, split: Split, indices: np.ndarray, chip: Chip, images: np.ndarray):
        self._split, self._indices, self._chip, self._images = split, indices, chip, images

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        count = len(self._indices)
        if index < count:
            return {"image": self._chip(self._split.image(self._indices[index]))}
        return {"image": self._images[index - count]}
