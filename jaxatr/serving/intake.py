"""Decodes uploads to chips, in threads and within limits."""

import asyncio
import concurrent.futures
import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxatr import data
from jaxatr.data.images import decode_image
from jaxatr.typing import Shaped

_SMALL = 1 << 20
"""Largest number of pixels of a small image; larger images have their own queue."""

_PADDED = 4
"""Largest number of pixels of a chip that is padded to a square, as a multiple of the limit."""

_AT_ONCE = 16  # small images of a request that a thread decodes before those of another request


class Upload(NamedTuple):
    """An uploaded file.

    Attributes:
      name: name given by the client, used in messages only.
      content: content of the file.
    """

    name: str
    content: bytes


class Read(NamedTuple):
    """A decoded upload.

    Attributes:
      name: name given by the client.
      id: SHA-256 of the content, in hexadecimal digits.
      chip: ``[h, w, c]``; None if the upload cannot be used.
      error: the reason why it cannot be used; empty if it can.
    """

    name: str
    id: str
    chip: Shaped[np.ndarray, "h w c"] | None
    error: str = ""


class Reader:
    """Decodes uploads.

    Small images share two threads. Large images are decoded one at a time in a third thread, so
    that small ones never wait for them.
    """

    def __init__(self, intake: data.Intake, *, most: int):
        """Sets up the threads.

        Args:
          intake: converts an image to a chip.
          most: largest number of pixels of an image.
        """
        self._intake, self._most = intake, most
        self._small = concurrent.futures.ThreadPoolExecutor(2, "jaxatr-read")
        self._large = concurrent.futures.ThreadPoolExecutor(1, "jaxatr-read-large")

    def close(self) -> None:
        """Ends the threads."""
        self._small.shutdown(cancel_futures=True)
        self._large.shutdown(cancel_futures=True)

    async def read(self, uploads: Sequence[Upload]) -> list[Read]:
        """Decodes uploads to chips, in order."""
        loop = asyncio.get_running_loop()
        small: list[Read | None] = []
        for start in range(0, len(uploads), _AT_ONCE):
            some = uploads[start : start + _AT_ONCE]
            small += await loop.run_in_executor(self._small, self._read_small, some)
        read = []
        for one, upload in zip(small, uploads, strict=True):
            read.append(one or await loop.run_in_executor(self._large, self._decoded, upload))
        return read

    def _read_small(self, uploads: Sequence[Upload]) -> list[Read | None]:
        """Decodes the small uploads; None stands for a large one."""
        return [self._unless_large(upload) for upload in uploads]

    def _unless_large(self, upload: Upload) -> Read | None:
        try:
            pixels = data.pixels_of(upload.content, upload.name, most=self._most)
        except ValueError as error:
            return _refused(upload, error)
        return None if pixels > _SMALL else self._decoded(upload)

    def _decoded(self, upload: Upload) -> Read:
        """Decodes an upload whose number of pixels is within the limit."""
        try:
            image = decode_image(upload.content, upload.name)
            self._check_padded(image)
            chip = self._intake(image)
        except (ValueError, ImportError) as error:
            return _refused(upload, error)
        return Read(upload.name, digest(upload.content), chip)

    def _check_padded(self, image: np.ndarray) -> None:
        """Checks that padding to a square does not take too much memory.

        A line of pixels, which is a file of a few bytes, would become an image of gigabytes.

        Raises:
          ValueError: it would.
        """
        geometry, (height, width) = self._intake.chip, image.shape[:2]
        side = max(height, width)
        if geometry.square and not geometry.center_crop and side**2 > _PADDED * self._most:
            raise ValueError(
                f"{height}x{width} pixels, padded to a square of {side}x{side}: wanted at most "
                f"{_PADDED * self._most} pixels"
            )


def digest(content: bytes) -> str:
    """Returns the SHA-256 of a file's content, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def _refused(upload: Upload, error: Exception) -> Read:
    reason = str(error).removeprefix(f"{upload.name}: ")
    return Read(upload.name, digest(upload.content), None, reason)
