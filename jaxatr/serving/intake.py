"""From what was uploaded to chips, in threads, within limits."""

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
"""Pixels up to which an image is decoded with others; larger ones wait in a line of their own."""

_AT_ONCE = 16  # small images that a thread decodes before it looks at another request


class Upload(NamedTuple):
    """A file as it came.

    Attributes:
      name: that the client gave; for messages alone.
      content: of the file.
    """

    name: str
    content: bytes


class Read(NamedTuple):
    """An upload that was read.

    Attributes:
      name: as it came.
      id: SHA-256 of the content, in hexadecimal digits.
      chip: ``[h, w, c]``, or None where it cannot be used.
      error: why it cannot; empty where it can.
    """

    name: str
    id: str
    chip: Shaped[np.ndarray, "h w c"] | None
    error: str = ""


class Reader:
    """Reads uploads.

    Small images share two threads. A large one takes a third, one after the other, so that however
    many large ones come, small ones do not wait for them.
    """

    def __init__(self, intake: data.Intake, *, most: int):
        """Starts no thread yet.

        Args:
          intake: from an image to a chip.
          most: pixels of an image that are accepted.
        """
        self._intake, self._most = intake, most
        self._small = concurrent.futures.ThreadPoolExecutor(2, "jaxatr-read")
        self._large = concurrent.futures.ThreadPoolExecutor(1, "jaxatr-read-large")

    def close(self) -> None:
        """Ends the threads."""
        self._small.shutdown(cancel_futures=True)
        self._large.shutdown(cancel_futures=True)

    async def read(self, uploads: Sequence[Upload]) -> list[Read]:
        """Makes chips of uploads, in order."""
        loop = asyncio.get_running_loop()
        found: list[Read | None] = []
        for start in range(0, len(uploads), _AT_ONCE):
            some = uploads[start : start + _AT_ONCE]
            found += await loop.run_in_executor(self._small, self._read_small, some)
        read = []
        for one, upload in zip(found, uploads, strict=True):
            read.append(one or await loop.run_in_executor(self._large, self._decoded, upload))
        return read

    def _read_small(self, uploads: Sequence[Upload]) -> list[Read | None]:
        """Reads those that are small or cannot be used; None for a large one."""
        return [self._unless_large(upload) for upload in uploads]

    def _unless_large(self, upload: Upload) -> Read | None:
        try:
            pixels = data.pixels_of(upload.content, upload.name, most=self._most)
        except ValueError as error:
            return _refused(upload, error)
        return None if pixels > _SMALL else self._decoded(upload)

    def _decoded(self, upload: Upload) -> Read:
        """Reads one whose pixels were counted."""
        try:
            chip = self._intake(decode_image(upload.content, upload.name))
        except (ValueError, ImportError) as error:
            return _refused(upload, error)
        return Read(upload.name, digest(upload.content), chip)


def digest(content: bytes) -> str:
    """Names a file's content."""
    return hashlib.sha256(content).hexdigest()


def _refused(upload: Upload, error: Exception) -> Read:
    reason = str(error).removeprefix(f"{upload.name}: ")
    return Read(upload.name, digest(upload.content), None, reason)
