"""Images from a file, such as a generator's, among the examples of a split."""

import hashlib
import os
import zipfile
from pathlib import Path

import numpy as np

from jaxatr.data.chip import Chip
from jaxatr.data.dataset import Split
from jaxatr.typing import Int, Shaped


def read_images(path: str | os.PathLike) -> tuple[Shaped[np.ndarray, "m h w c"], str]:
    """Returns the images of an ``.npz`` file, and the SHA-256 of their pixels.

    Raises:
      ValueError: there is no such file, or no array ``images`` of that shape in it.
    """
    if not Path(path).is_file():
        raise ValueError(f"{path}: there is no such file")
    try:
        with np.load(path) as arrays:
            images = np.asarray(arrays["images"])
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: no array 'images' can be read from it ({error})") from error
    if images.ndim != 4 or not images.size:
        raise ValueError(f"{path}: got images of shape {images.shape}, wanted some, [m, h, w, c]")
    content = np.ascontiguousarray(images)
    digest = hashlib.sha256(f"{content.shape} {content.dtype.str}".encode())
    digest.update(content.tobytes())
    return images, digest.hexdigest()


def chips_and_images(
    split: Split, indices: Int[np.ndarray, " n"], chip: Chip, images: Shaped[np.ndarray, "m h w c"]
) -> Split:
    """Returns a split of some examples' chips, which come first, and of further images.

    It has the columns ``id``, those of the images counted on from the split's highest, ``label``,
    -1 for the images, and the shape's. Its images are chips already: no geometry is left to do.

    Args:
      split: to take examples from.
      indices: ``[n]``, which.
      chip: their geometry.
      images: ``[m, h, w, c]``, shaped as the chips and of their type.
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
    records = _Records(split, indices, chip, images)
    return Split(f"{split.name} and images", records, columns, split.classes, split.dtype)


class _Records:
    """The arrays of an example by its number, as a split reads them."""

    def __init__(self, split: Split, indices: np.ndarray, chip: Chip, images: np.ndarray):
        self._split, self._indices, self._chip, self._images = split, indices, chip, images

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        own = len(self._indices)
        if index < own:
            return {"image": self._chip(self._split.image(self._indices[index]))}
        return {"image": self._images[index - own]}
