"""Images that belong to no known class, from a folder or an archive."""

import hashlib
import os

import numpy as np

from jaxatr.data.chip import Chip
from jaxatr.data.images import ImageError
from jaxatr.data.others import image_files
from jaxatr.typing import Shaped


def read_chips(source: str | os.PathLike, chip: Chip) -> tuple[Shaped[np.ndarray, "m h w c"], str]:
    """Reads all images of a folder or an archive as chips, and returns them with their SHA-256.

    Hidden files and files in hidden folders are left out.

    Args:
      source: the folder, with or without subfolders, or the archive.
      chip: the geometry applied to every image.

    Raises:
      ValueError: the source does not exist or has no image, a file is not an image, or the chips
        differ in shape or dtype.
    """
    chips: list[np.ndarray] = []
    with image_files(source) as (names, read):
        if not names:
            raise ValueError(f"{source}: there is no image in it")
        for number, name in enumerate(names):
            try:
                chips.append(chip(read(number)))
            except ValueError as error:
                raise ImageError(f"{name}: {error}") from error
            if (chips[-1].shape, chips[-1].dtype) != (chips[0].shape, chips[0].dtype):
                raise ImageError(
                    f"{name}: got a chip of shape {chips[-1].shape} and type {chips[-1].dtype}, "
                    f"wanted that of {names[0]}, {chips[0].shape} and {chips[0].dtype}"
                )
    images = np.stack(chips)
    digest = hashlib.sha256(f"{images.shape} {images.dtype.str}".encode())
    digest.update(images.tobytes())
    return images, digest.hexdigest()
