"""Finds targets in uploaded scenes, and cuts out their chips; nothing is kept."""

import asyncio
import concurrent.futures
import contextlib
import io
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from jaxatr import data
from jaxatr.data.annotations.scene import fault_of
from jaxatr.data.chip import around
from jaxatr.data.scene_image import SceneImage, scene_of
from jaxatr.data.sources.scenes import Framing
from jaxatr.recognition.neighbours import as_png
from jaxatr.scenes.boxes import clipped
from jaxatr.serving.batcher import Busy
from jaxatr.serving.intake import Prepare, Read, digest
from jaxatr.serving.options import Limits
from jaxatr.tasks.detection.predictor import Detections, Detector
from jaxatr.typing import Float, Shaped


class TooLong(Exception):
    """A scene was not searched in time; the message is for the client."""


class Cut(NamedTuple):
    """The chip of a box.

    Attributes:
      read: the chip, or why there is none.
      file: the part of the scene from which it is made, as the content of an image file; its digest
        is the chip's ``id``.
    """

    read: Read
    file: bytes


class Scenes:
    """Searches scenes one after another in a thread, and cuts out chips.

    Attributes:
      detector: finds the targets; None if only given boxes are decided about.
    """

    def __init__(
        self, prepare: Prepare, framing: Framing, limits: Limits, detector: Detector | None = None
    ):
        """Sets up the thread.

        Args:
          prepare: makes the network's chip of the part of a scene around a box.
          framing: how this part is cut, as in the recogniser's training.
          limits: limits on time and memory.
          detector: finds the targets.
        """
        self.detector = detector
        self._prepare, self._framing, self._limits = prepare, framing, limits
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "jaxatr-scenes")
        self._ends, self._idle, self._open = threading.Event(), threading.Event(), 0
        self._idle.set()

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Takes one of the places for scenes that are in memory.

        Raises:
          Busy: all are taken.
        """
        if self._open >= self._limits.scenes:
            raise Busy(f"{self._open} scenes are being read or searched", 2)
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1

    def warm(self) -> None:
        """Compiles the detector for the tiles of large scenes."""
        if self.detector is not None:
            side, detector = self.detector.tile, self.detector
            blank = np.zeros((side, side, detector.channels), detector.dtype)
            detector.detect_in(scene_of(blank), batch_size=1)

    async def search(self, scene: Read, least: float | None = None) -> Detections:
        """Finds the targets in a scene.

        A search that is cancelled ends with the tile that is being computed.

        Args:
          scene: a scene that could be read.
          least: the least score of a target; None for the detector's.

        Raises:
          ValueError: the scene is not one for the detector.
          TooLong: it takes longer than ``limits.answer_seconds``.
        """
        loop, gone = asyncio.get_running_loop(), threading.Event()
        try:
            return await loop.run_in_executor(self._thread, self._search, scene, least, gone)
        finally:
            gone.set()

    def _search(self, scene: Read, least: float | None, gone: threading.Event) -> Detections:
        assert self.detector is not None and scene.chip is not None
        seconds = self._limits.answer_seconds
        end, opened = time.monotonic() + seconds, scene_of(scene.chip, scene.name)

        def pixels(rows: slice, columns: slice) -> np.ndarray:
            if gone.is_set() or self._ends.is_set():
                raise TooLong("the search was given up")
            if time.monotonic() > end:
                raise TooLong(
                    f"{scene.name} of {opened.width}x{opened.height} pixels was not searched "
                    f"within {seconds:g} s: send a part of it, or use jaxatr detect"
                )
            return opened.pixels(rows, columns)

        self._idle.clear()
        try:
            return self.detector.detect_in(
                opened._replace(pixels=pixels), batch_size=1, least=least
            )
        finally:
            self._idle.set()

    def cut(self, scene: Read, boxes: Float[np.ndarray, "n 4"]) -> list[Cut]:
        """Cuts out the chip of each box, as in the recogniser's training.

        Args:
          scene: a scene that could be read.
          boxes: x0, y0, x1, y1 in pixels, within the scene.
        """
        assert scene.chip is not None
        opened, left, cuts = scene_of(scene.chip, scene.name), self._limits.body, []
        for number, box in enumerate(boxes, 1):
            name = f"{scene.name} #{number}"
            try:
                part = self._part(opened, box, left)
            except ValueError as error:
                cuts.append(Cut(Read(name, "", None, str(error)), b""))
                continue
            left -= part.nbytes
            file = _file_of(part)
            try:
                read = Read(name, digest(file), self._prepare(part))
            except ValueError as error:
                read = Read(name, digest(file), None, str(error))
            cuts.append(Cut(read, file))
        return cuts

    def _part(
        self, scene: SceneImage, box: Float[np.ndarray, " 4"], left: int
    ) -> Shaped[np.ndarray, "h w c"]:
        """Cuts a chip's part out of a scene.

        Raises:
          ValueError: it has more bytes than are ``left``; it could be far larger than the scene.
        """
        framing = self._framing
        x0, y0, x1, y1 = around(box, margin=framing.margin, square=framing.square)
        one = scene.pixels(slice(0, 1), slice(0, 1))
        if (x1 - x0) * (y1 - y0) * one.nbytes > left:
            raise ValueError(
                f"its chip of {x1 - x0}x{y1 - y0} pixels, with those before it, has more than "
                f"{self._limits.body} bytes"
            )
        return framing.chip(scene, box)[0]

    def close(self, seconds: float) -> bool:
        """Ends the thread; returns whether it has ended within some seconds."""
        self._ends.set()
        self._thread.shutdown(wait=False, cancel_futures=True)
        return self._idle.wait(seconds)


def boxes_of(texts: Sequence[str], size: tuple[int, int]) -> Float[np.ndarray, "n 4"]:
    """Reads boxes given as texts ``x0,y0,x1,y1`` in pixels, and clips them to their scene.

    Args:
      texts: one or more boxes.
      size: height and width of the scene.

    Raises:
      ValueError: a box is no box in the scene; the message says which and why.

    >>> boxes_of(["-1,2,3.5,4"], (9, 9)).tolist()
    [[0.0, 2.0, 3.5, 4.0]]
    """
    boxes = []
    for number, text in enumerate(texts, 1):
        try:
            corners = tuple(map(float, text.split(",")))
        except ValueError:
            corners = ()
        if len(corners) != 4:
            raise ValueError(f"box {number}: got {text!r}, wanted x0,y0,x1,y1")
        if fault := fault_of(corners, size):
            raise ValueError(f"box {number}: {fault}")
        boxes.append(corners)
    height, width = size
    return np.asarray(clipped(np.array(boxes, float), width, height))


def picture_of(scene: Shaped[np.ndarray, "h w c"]) -> bytes:
    """Returns a scene for display: a PNG of 8 bits a channel, of the scene's own size."""
    return as_png(data.thumbnail(scene, side=max(scene.shape[:2])), effort=1)


def _file_of(part: Shaped[np.ndarray, "h w c"]) -> bytes:
    """Encodes pixels without a loss: a PNG, or ``.npy`` for more than 8 bits, and other bands."""
    if part.dtype == np.uint8 and part.shape[2] in (1, 3):
        return as_png(part)
    file = io.BytesIO()
    np.save(file, part)
    return file.getvalue()
