"""Images that belong to no known class, from a folder or an archive."""

import hashlib
import os

import numpy as np

from jaxatr.data.bands import PLAIN, Bands
from jaxatr.data.chip import Chip
from jaxatr.data.images import ImageError
from jaxatr.data.others import images_at, read_listed
from jaxatr.typing import Shaped


def read_chips(
    source: str | os.PathLike, chip: Chip, bands: Bands = PLAIN
) -> tuple[Shaped[np.ndarray, "m h w c"], str]:
    """Reads all images of a folder or an archive as chips, and returns them with their SHA-256.

    Args:
      source: the folder or the archive (:func:`jaxatr.data.image_paths.image_paths`).
      chip: the geometry applied to every image.
      bands: how files become images.

    Raises:
      ValueError: the source does not exist or has no image, an image cannot be read or
        is a link to nothing, or the chips differ in shape or dtype.
    """
    chips: list[np.ndarray] = []
    with images_at(source, bands) as images:
        for image in images:
            try:
                chips.append(chip(read_listed(image, bands)))
            except ValueError as error:
                raise ImageError(f"{image.name}: {error}") from error
            first, last = chips[0], chips[-1]
            if (last.shape, last.dtype) != (first.shape, first.dtype):
                raise ImageError(
                    f"{image.name}: got a chip of shape {last.shape} and type {last.dtype}, "
                    f"wanted that of {images[0].name}, {first.shape} and {first.dtype}"
                )
    stacked = np.stack(chips)
    digest = hashlib.sha256(f"{stacked.shape} {stacked.dtype.str}".encode())
    digest.update(stacked.tobytes())
    return stacked, digest.hexdigest()
