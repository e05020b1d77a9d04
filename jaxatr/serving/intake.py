"""Decodes uploads to chips or scenes, in threads and within limits."""

import asyncio
import concurrent.futures
import hashlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from jaxatr import data
from jaxatr.data import decoder
from jaxatr.data.images import decode_image
from jaxatr.typing import Shaped

_LOG = logging.getLogger(__name__)

_SMALL = 1 << 20
"""Largest number of pixels of a small image; larger images have their own queue."""

_PADDED = 4
"""Largest number of pixels of a chip that is padded to a square, as a multiple of the limit."""

_THREADS = 2  # for small images
_TURN = 0.02  # seconds that a request's images keep a thread before it takes those of another one

STUCK = 10.0
"""Seconds of one image after which a thread counts as stuck."""


Prepare: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""Makes what is kept of a decoded image ``[h, w, c]``."""


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
      chip: ``[h, w, c]``, of a scene all of its pixels; None if the upload cannot be used.
      error: the reason why it cannot be used; empty if it can.
    """

    name: str
    id: str
    chip: Shaped[np.ndarray, "h w c"] | None
    error: str = ""


class Reader:
    """Decodes uploads.

    Small images share two threads. Large images are decoded one at a time in a third thread, so
    that small ones never wait for them. Requests take turns. A request that is cancelled ends with
    the image that is being decoded; the decoder itself bounds the work of one image.
    """

    def __init__(self, intake: data.Intake, *, most: int):
        """Sets up the threads."""
        self._intake, self._most = intake, most
        self._small = concurrent.futures.ThreadPoolExecutor(_THREADS, "jaxatr-read")
        self._large = concurrent.futures.ThreadPoolExecutor(1, "jaxatr-read-large")
        # Start of the image that a thread decodes, by the thread; whether it is of the small ones.
        self._begun: dict[int, tuple[float, bool]] = {}

    @property
    def decoding(self) -> int:
        """The number of images that are being decoded."""
        return len(self._begun)

    @property
    def seconds(self) -> float:
        """The time for which an image has been decoded so far, the longest one; 0 for none."""
        return max(self._times(), default=0.0)

    @property
    def stuck(self) -> float:
        """Seconds since which no small image can be decoded, if more than :data:`STUCK`; else 0."""
        times = self._times(small=True)
        return min(times) if len(times) == _THREADS and min(times) > STUCK else 0.0

    def _times(self, *, small: bool = False) -> list[float]:
        now = time.monotonic()
        return [now - start for start, one in list(self._begun.values()) if one or not small]

    def close(self, seconds: float = STUCK) -> bool:
        """Ends the threads; returns whether they have ended within some seconds."""
        for pool in (self._small, self._large):
            pool.shutdown(wait=False, cancel_futures=True)
        end = time.monotonic() + seconds
        while self._begun and time.monotonic() < end:
            time.sleep(0.01)
        return not self._begun

    async def read(self, uploads: Sequence[Upload], *, scenes: bool = False) -> list[Read]:
        """Decodes uploads, in order.

        Args:
          uploads: the files.
          scenes: keep all pixels, instead of :meth:`chip`; missing values of a TIFF are 0.
        """
        loop, gone = asyncio.get_running_loop(), threading.Event()
        small: list[Read | None] = []
        read = []
        try:
            while len(small) < len(uploads):
                rest = uploads[len(small) :]
                small += await loop.run_in_executor(
                    self._small, self._read_small, rest, gone, scenes
                )
            for one, upload in zip(small, uploads, strict=True):
                read.append(
                    one
                    or await loop.run_in_executor(self._large, self._decoded, upload, scenes, False)
                )
        finally:
            gone.set()
        return read

    def _read_small(
        self, uploads: Sequence[Upload], gone: threading.Event, scenes: bool
    ) -> list[Read | None]:
        """Decodes the first small uploads, for one turn; None stands for a large one."""
        end, read = time.monotonic() + _TURN, []
        for upload in uploads:
            if gone.is_set() or (read and time.monotonic() > end):
                break
            read.append(self._unless_large(upload, scenes))
        return read

    def _unless_large(self, upload: Upload, scene: bool) -> Read | None:
        try:
            pixels = decoder.header(upload.content, upload.name, most=self._most).work
        except Exception as error:
            return _refused(upload, error)
        return None if pixels > _SMALL else self._decoded(upload, scene)

    def _decoded(self, upload: Upload, scene: bool, small: bool = True) -> Read:
        """Decodes an upload whose number of pixels is within the limit."""
        thread = threading.get_ident()
        self._begun[thread] = time.monotonic(), small
        try:
            bands = self._intake.bands
            image = decode_image(
                upload.content, upload.name, phase=bands.phase, names=bands.names, fill=scene
            )
            kept = image if scene else self.chip(image)
            return Read(upload.name, digest(upload.content), kept)
        except Exception as error:
            return _refused(upload, error)
        finally:
            del self._begun[thread]

    def chip(self, image: Shaped[np.ndarray, "y x d"]) -> Shaped[np.ndarray, "h w c"]:
        """Converts an image to the chip that the network sees.

        Raises:
          ValueError: it cannot be used, or would take too much memory when it is padded to a
            square: a line of pixels, which is a file of a few bytes, would become gigabytes.
        """
        geometry, (height, width) = self._intake.chip, image.shape[:2]
        side = max(height, width)
        if geometry.square and not geometry.center_crop and side**2 > _PADDED * self._most:
            raise ValueError(
                f"{height}x{width} pixels, padded to a square of {side}x{side}: wanted at most "
                f"{_PADDED * self._most} pixels"
            )
        return self._intake(image)


def digest(content: bytes) -> str:
    """Returns the SHA-256 of a file's content, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def _refused(upload: Upload, error: Exception) -> Read:
    """Returns the answer to an upload whose decoding has failed.

    Decoders raise errors of any type for damaged files. None of them may end the request, in which
    there are other images.
    """
    reason = str(error).removeprefix(f"{upload.name}: ")
    if not isinstance(error, ValueError | ImportError):
        _LOG.warning("%s could not be decoded", upload.name, exc_info=error)
        reason = f"not a readable image: {type(error).__name__}"
    return Read(upload.name, digest(upload.content), None, reason)
