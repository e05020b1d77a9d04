"""Facts about every image of a set, gathered in one pass."""

import dataclasses
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from PIL import Image
from tqdm import tqdm

from jaxatr.data.chip import Chip
from jaxatr.data.doctor.marks import Marks
from jaxatr.data.doctor.subject import Subject
from jaxatr.typing import Bool, Float, Int, Shaped

SIDE = 24
"""Side in pixels of the downscaled images that are compared with each other."""
_RING = 8  # the border's width is the shorter side divided by this
_QUANTILES = (0.1, 0.5, 0.9)
_AHEAD = 64  # images read in advance


class Facts(NamedTuple):
    """Facts about the n images that could be read.

    Attributes:
      number: ``[n]``, the image's number in the subject.
      label: ``[n]``, the image's class.
      part: ``[n]``, the image's split.
      size: ``[n, 3]``, height, width and channels.
      dtype: ``[n]``, name of the dtype.
      mean: ``[n]``, mean over all pixels, in raw units.
      spread: ``[n]``, standard deviation over all pixels.
      border: ``[n, f]``, mean, deviation, three quantiles and the four sides' means of the border,
        an eighth of the shorter side wide.
      digest: ``[n]``, hash of shape, dtype and pixels.
      small: ``[n, 24 * 24]``, the image downscaled and gray, centred and of unit length; 0 for a
        constant image.
      turned: ``[n]``, whether the file has an EXIF orientation, which is not applied.
      alpha: ``[n]``, whether the file has an alpha plane, which is dropped.
      refused: ``[r]``, numbers of the images that could not be read.
      unreadable: (file, reason) of these, and of files known to be damaged before.
      total: number of images in the subject, of which a sample may have been read.
    """

    number: Int[np.ndarray, " n"]
    label: Int[np.ndarray, " n"]
    part: Int[np.ndarray, " n"]
    size: Int[np.ndarray, "n 3"]
    dtype: Shaped[np.ndarray, " n"]
    mean: Float[np.ndarray, " n"]
    spread: Float[np.ndarray, " n"]
    border: Float[np.ndarray, "n f"]
    digest: Shaped[np.ndarray, " n"]
    small: Float[np.ndarray, "n p"]
    turned: Bool[np.ndarray, " n"]
    alpha: Bool[np.ndarray, " n"]
    refused: Int[np.ndarray, " r"]
    unreadable: tuple[tuple[str, str], ...]
    total: int


@dataclasses.dataclass(frozen=True)
class _Image:
    size: tuple[int, int, int]
    dtype: str
    mean: float
    spread: float
    border: list[float]
    digest: str
    small: np.ndarray
    marks: Marks


def gather(subject: Subject, *, chip: Chip | None = None, limit: int = 0, seed: int = 0) -> Facts:
    """Reads every image once and gathers facts about it.

    Args:
      subject: the set of images.
      chip: geometry applied to each image first; an image it refuses counts as unreadable.
      limit: the largest number of images, a random sample if there are more; 0 for all.
      seed: seed of the draw.

    Raises:
      ValueError: no image can be read.
    """
    numbers = np.arange(len(subject))
    if 0 < limit < len(numbers):
        numbers = np.sort(np.random.default_rng(seed).permutation(numbers)[:limit])
    bar = tqdm(
        total=len(numbers),
        unit="image",
        desc="checking",
        leave=False,
        dynamic_ncols=True,
        disable=None,
    )
    kept: list[int] = []
    found: list[_Image] = []
    unreadable = list(subject.unreadable)
    with bar:
        for number, image in zip(numbers, _facts(subject, numbers, chip), strict=True):
            bar.update()
            if isinstance(image, _Image):
                kept.append(int(number))
                found.append(image)
            else:
                unreadable.append((subject.names[int(number)], image))
    if not found:
        why = unreadable[0][1] if unreadable else "there are none"
        raise ValueError(f"{subject.name}: none of its images can be read ({why})")
    rows = np.array(kept, np.int64)
    return Facts(
        number=rows,
        label=subject.labels[rows],
        part=subject.parts[rows],
        size=np.array([one.size for one in found], np.int64),
        dtype=np.array([one.dtype for one in found]),
        mean=np.array([one.mean for one in found]),
        spread=np.array([one.spread for one in found]),
        border=np.array([one.border for one in found]),
        digest=np.array([one.digest for one in found]),
        small=np.stack([one.small for one in found]),
        turned=np.array([one.marks.turned for one in found]),
        alpha=np.array([one.marks.alpha for one in found]),
        refused=np.setdiff1d(numbers, rows),
        unreadable=tuple(unreadable),
        total=len(subject),
    )


def _facts(subject: Subject, numbers: np.ndarray, chip: Chip | None) -> Iterator["_Image | str"]:
    """Yields the facts about each image, or the reason why it cannot be read, a few in advance."""

    def look(number: int) -> _Image | str:
        try:
            image = subject.read(number)
            found = subject.marks(number) if subject.marks else Marks()
            return _image(image if chip is None else chip(image), found)
        except (ValueError, OSError) as error:
            return str(error)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(numbers), _AHEAD):
            yield from pool.map(look, numbers[start : start + _AHEAD].tolist())


def _image(image: Shaped[np.ndarray, "h w c"], marks: Marks) -> _Image:
    gray = image.astype(np.float64).mean(axis=2)
    digest = hashlib.sha256(f"{image.shape} {image.dtype.str}".encode())
    digest.update(image.tobytes())
    height, width, channels = image.shape
    return _Image(
        size=(height, width, channels),
        dtype=image.dtype.name,
        mean=float(gray.mean()),
        spread=float(gray.std()),
        border=border(gray),
        digest=digest.hexdigest(),
        small=small(gray),
        marks=marks,
    )


def border(gray: Float[np.ndarray, "h w"]) -> list[float]:
    """Returns statistics of an image's border, which mostly shows the target's surroundings."""
    wide = max(1, min(gray.shape) // _RING)
    sides = [gray[:wide], gray[-wide:], gray[:, :wide], gray[:, -wide:]]
    ring = np.ones(gray.shape, bool)
    ring[wide:-wide, wide:-wide] = False
    values = gray[ring]
    quantiles = np.quantile(values, _QUANTILES)
    means = [float(side.mean()) for side in sides]
    return [float(values.mean()), float(values.std()), *quantiles.tolist(), *means]


def small(gray: Float[np.ndarray, "h w"]) -> Float[np.ndarray, " p"]:
    """Downscales and normalises an image, so that the product of two is their correlation.

    >>> a = small(np.arange(100.0).reshape(10, 10))
    >>> float(round(a @ small(3 * np.arange(100.0).reshape(10, 10) + 5), 6))
    1.0
    """
    largest = float(np.abs(gray).max()) or 1.0  # images in any units are treated alike
    picture = Image.fromarray((gray / largest).astype(np.float32))
    values = np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BOX), np.float32).ravel()
    values = values - values.mean()
    length = float(np.linalg.norm(values))
    flat = length <= 1e-6 * SIDE
    return np.zeros_like(values) if flat else values / np.float32(length)
