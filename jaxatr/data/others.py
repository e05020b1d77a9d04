"""Images from outside a run's data set: a folder, an archive or another data set."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxatr.data import archive
from jaxatr.data.bands import PLAIN, Bands
from jaxatr.data.catalogue import open_dataset
from jaxatr.data.combined_splits import concatenated
from jaxatr.data.dataset import SHAPE_COLUMNS, Split
from jaxatr.data.files_below import NOWHERE
from jaxatr.data.image_paths import ImagePath, image_paths, reason_of
from jaxatr.data.intake import Intake
from jaxatr.files import MissingFileError, Scratch
from jaxatr.typing import Int, Shaped


class Others(NamedTuple):
    """Chips of images from another source.

    Attributes:
      chips: ``[m, h, w, c]``, ready for the network.
      numbers: ``[m]``, each image's number within the source, ascending.
      left_out: (image, reason) of images that cannot be used.
    """

    chips: Shaped[np.ndarray, "m h w c"]
    numbers: Int[np.ndarray, " m"]
    left_out: list[tuple[str, str]]

    def split(self, name: str) -> Split:
        """Returns the chips as a split; ``label`` is -1 and ``id`` the number."""
        columns = dict(zip(SHAPE_COLUMNS, self.chips.shape[1:], strict=True))
        columns |= {"label": -1}
        full = {key: np.full(len(self.chips), value) for key, value in columns.items()}
        records = [{"image": chip} for chip in self.chips]
        return Split(name, records, full | {"id": self.numbers}, (), self.chips.dtype)


def check_others(source: str | os.PathLike, *, data_dir: str | None = None) -> None:
    """Checks that a source of :func:`read_others` exists.

    Raises:
      ValueError: there is no such folder, archive or data set.
    """
    path = Path(source).expanduser()
    if path.is_dir() or (path.is_file() and archive.is_archive(path)):
        return
    if path.is_file():
        suffixes = ", ".join(archive.SUFFIXES)
        raise ValueError(f"{source}: got a file, wanted an archive of images ({suffixes})")
    try:
        open_dataset(os.fspath(source), data_dir=data_dir)
    except ValueError as error:
        raise MissingFileError(
            f"{source}: there is no such folder or archive, and {error}"
        ) from error


def read_others(
    source: str | os.PathLike,
    intake: Intake,
    *,
    most: int = 0,
    seed: int = 0,
    data_dir: str | None = None,
) -> Others:
    """Reads a source's images as chips for a network.

    Images of other sizes are resized (:meth:`Intake.resized`). Images that cannot be read, or whose
    dtype differs from the training images', are left out.

    Args:
      source: a folder or an archive of images (:func:`image_paths`), or the name of a data set,
        read with all its splits.
      intake: the network's requirements.
      most: the largest number of images, a random sample if there are more; 0 for all.
      seed: seed of the draw.
      data_dir: folder of the prepared data sets.

    Raises:
      ValueError: there is no such source, or none of its images can be used.
    """
    check_others(source, data_dir=data_dir)
    found: dict[int, np.ndarray] = {}
    left_out: list[tuple[str, str]] = []
    with _opened(source, data_dir, intake.bands) as (names, read):
        order = np.random.default_rng(seed).permutation(len(names)) if most else range(len(names))
        for number in map(int, order):
            try:
                found[number] = intake.resized(read(number))
            except ValueError as error:
                left_out.append((names[number], str(error)))
            if most and len(found) == most:
                break
    if not found:
        reason = f" ({left_out[0][0]}: {left_out[0][1]})" if left_out else ""
        raise ValueError(f"{source}: there is no image in it that can be used{reason}")
    numbers = np.array(sorted(found), np.int32)
    return Others(np.stack([found[number] for number in numbers]), numbers, sorted(left_out))


@contextlib.contextmanager
def _opened(
    source: str | os.PathLike, data_dir: str | None, bands: Bands
) -> Iterator[tuple[list[str], Callable[[int], np.ndarray]]]:
    """Yields the names of all images, and a function that reads an image by number."""
    path = Path(source).expanduser()
    if not path.exists():
        dataset = open_dataset(os.fspath(source), data_dir=data_dir)
        split = concatenated([dataset.splits[name] for name in sorted(dataset.splits)])
        yield [f"{split.name} {number}" for number in range(len(split))], split.image
        return
    with images_at(source, bands) as images:
        yield [one.name for one in images], lambda number: read_listed(images[number], bands)


@contextlib.contextmanager
def images_at(source: str | os.PathLike, bands: Bands = PLAIN) -> Iterator[tuple[ImagePath, ...]]:
    """Yields the images in a folder or an archive, those that predictions would be made for.

    The files that links to nothing stand for are among them, with their error.

    Raises:
      ValueError: there is no such folder or archive, or it has no image.
    """
    path = Path(source).expanduser()
    if not path.exists():
        raise MissingFileError(f"there is no folder {source}")
    with Scratch() as scratch:
        images, passed = image_paths(str(path), scratch, bands)
        if count := passed.get(NOWHERE):
            missing = ImagePath(str(path), str(path), "", ValueError(f"{count} {NOWHERE}"))
            images = (*images, missing)
        yield images


def read_listed(image: ImagePath, bands: Bands = PLAIN) -> np.ndarray:
    """Reads a listed image.

    Raises:
      ValueError: it cannot be read; the message does not repeat its name.
    """
    try:
        if image.error is not None:
            raise image.error
        return bands.read(image.file)
    except (ValueError, OSError) as error:
        raise ValueError(reason_of(error, image.name, image.file)) from error
