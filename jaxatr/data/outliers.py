"""Images that belong to no known class, from a folder."""

import hashlib
import os
from pathlib import Path

import numpy as np

from jaxatr.data.chip import Chip
from jaxatr.data.files_below import visible_below
from jaxatr.data.images import ImageError, read_image
from jaxatr.typing import Shaped


def read_chips(folder: str | os.PathLike, chip: Chip) -> tuple[Shaped[np.ndarray, "m h w c"], str]:
    """Reads all images below a folder as chips, and returns them with their pixels' SHA-256.

    Hidden files and files in hidden folders are left out.

    Args:
      folder: the folder, with or without subfolders.
      chip: the geometry applied to every image.

    Raises:
      ValueError: the folder does not exist or has no image, a file is not an image, or the chips
        differ in shape or dtype.
    """
    root = Path(folder)
    paths = visible_below(root)
    if not paths:
        raise ValueError(f"{folder}: there is no image in this folder")
    chips = []
    for path in paths:
        image = read_image(root / path)
        try:
            chips.append(chip(image))
        except ValueError as error:
            raise ImageError(f"{root / path}: {error}") from error
        if (chips[-1].shape, chips[-1].dtype) != (chips[0].shape, chips[0].dtype):
            raise ImageError(
                f"{root / path}: got a chip of shape {chips[-1].shape} and type {chips[-1].dtype}, "
                f"wanted that of {paths[0]}, {chips[0].shape} and {chips[0].dtype}"
            )
    images = np.stack(chips)
    digest = hashlib.sha256(f"{images.shape} {images.dtype.str}".encode())
    digest.update(images.tobytes())
    return images, digest.hexdigest()
