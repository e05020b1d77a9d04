"""Images that belong to no known class, from a folder or an archive."""

import hashlib
import os
import tempfile
from pathlib import Path, PurePath

import numpy as np

from jaxatr.data import archive
from jaxatr.data.chip import Chip
from jaxatr.data.files_below import visible_below
from jaxatr.data.image_paths import reason_of
from jaxatr.data.images import ImageError, read_image
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
    with tempfile.TemporaryDirectory(prefix="jaxatr-") as scratch:
        root = archive.opened(Path(source).expanduser(), Path(scratch))
        paths = visible_below(root)
        if not paths:
            raise ValueError(f"{source}: there is no image in it")
        chips: list[np.ndarray] = []
        for path in paths:
            name = str(PurePath(source, path))
            chips.append(_chip(root / path, name, chip))
            if (chips[-1].shape, chips[-1].dtype) != (chips[0].shape, chips[0].dtype):
                raise ImageError(
                    f"{name}: got a chip of shape {chips[-1].shape} and type {chips[-1].dtype}, "
                    f"wanted that of {paths[0]}, {chips[0].shape} and {chips[0].dtype}"
                )
    images = np.stack(chips)
    digest = hashlib.sha256(f"{images.shape} {images.dtype.str}".encode())
    digest.update(images.tobytes())
    return images, digest.hexdigest()


def _chip(file: Path, name: str, chip: Chip) -> Shaped[np.ndarray, "h w c"]:
    try:
        return chip(read_image(file))
    except ValueError as error:
        raise ImageError(f"{name}: {reason_of(error, name, str(file))}") from error
