"""Gathers the chips of many requests into batches of a few sizes, which one thread computes.

The sizes are compiled before the first request, so that nothing is compiled later. A batch is what
waits when the one before is done: nothing waits for a batch to fill, and under load batches fill by
themselves.
"""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from jaxatr.serving.engine import Answer
from jaxatr.typing import Float, Shaped

Chip = Shaped[np.ndarray, "h w c"]

_FULL = 0.75
"""A batch that is filled to this share is run at its size, the rest of it wasted."""


@runtime_checkable  # the tests check annotations as they run
class Computes(Protocol):
    """What computes, one call after the other: :class:`jaxatr.serving.engine.Engine`."""

    def answer(self, chips: np.ndarray, *, neighbours: bool = False) -> list[Answer]:
        """Answers a batch ``[b, h, w, c]``, every chip of it."""
        ...

    def saliency(self, chip: np.ndarray) -> tuple[str, np.ndarray]:
        """Explains the class that a chip is most like: its name, and the map."""
        ...


class Busy(Exception):
    """Too much is waiting; the message is for the client.

    Attributes:
      seconds: after which it may be worth another try.
    """

    def __init__(self, message: str, seconds: int):
        """Takes what to say."""
        super().__init__(message)
        self.seconds = seconds


class _Place(NamedTuple):
    """A chip that waits, and where its answer goes."""

    chip: Chip
    neighbours: bool
    answers: list[Any]
    row: int
    done: "_Done"


class _Done:
    """The end of one request's chips."""

    def __init__(self, count: int, deadline: float):
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.left, self.deadline = count, deadline

    @property
    def given_up(self) -> bool:
        return self.future.cancelled() or time.monotonic() > self.deadline


class Batcher:
    """The one thread that computes, and what waits for it.

    Attributes:
      engine: of the next batch; it may be exchanged for one of the same run at any time.
    """

    def __init__(
        self,
        engine: Computes,
        sizes: Sequence[int],
        *,
        most: int,
        seconds: float,
        seen: Callable[[int, int, float], None] = lambda size, count, seconds: None,
    ):
        """Takes an engine that is warm for the sizes.

        Args:
          engine: what computes.
          sizes: of batches, ascending.
          most: chips that may wait.
          seconds: that a chip may wait.
          seen: is told a batch's size, the chips in it, and the seconds that it took.
        """
        self.engine, self._sizes, self._most, self._seconds = engine, tuple(sizes), most, seconds
        self._seen = seen
        self._waiting: deque[_Place] = deque()
        self._explained: deque[tuple[Chip, _Done]] = deque()
        self._changed = threading.Condition()
        self._ends = False
        self._rate = 0.0  # chips a second, of late
        self._thread = threading.Thread(target=self._work, name="jaxatr-compute", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Computes what waits, and ends the thread."""
        with self._changed:
            self._ends = True
            self._changed.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether there is somebody to compute."""
        return self._thread.is_alive()

    @property
    def waiting(self) -> int:
        """How many chips wait."""
        return len(self._waiting) + len(self._explained)

    def check(self, count: int) -> None:
        """Refuses chips that would wait too long.

        Raises:
          Busy: as many as may wait are waiting already.
        """
        waiting = self.waiting
        if waiting and waiting + count > self._most:
            seconds = math.ceil(waiting / self._rate) if self._rate else 1
            raise Busy(f"{waiting} chips are waiting", max(1, min(60, seconds)))

    async def answer(self, chips: Sequence[Chip], *, neighbours: bool = False) -> list[Answer]:
        """Answers chips, in order.

        Args:
          chips: at least one.
          neighbours: whether to name the nearest training chips.

        Raises:
          Busy: too many are waiting, or these waited too long.
        """
        self.check(len(chips))
        done, answers = self._done(len(chips)), [None] * len(chips)
        places = [_Place(chip, neighbours, answers, row, done) for row, chip in enumerate(chips)]
        with self._changed:
            self._waiting.extend(places)
            self._changed.notify()
        await self._until(done)
        return answers  # type: ignore[return-value]

    async def explain(self, chip: Chip) -> tuple[str, Float[np.ndarray, "h w"]]:
        """Explains the class that a chip is most like, when no batch waits.

        Raises:
          Busy: as :meth:`answer`.
          ValueError: the run has no maps.
        """
        self.check(1)
        done = self._done(1)
        with self._changed:
            self._explained.append((chip, done))
            self._changed.notify()
        return await self._until(done)

    def _done(self, count: int) -> _Done:
        return _Done(count, time.monotonic() + self._seconds)

    async def _until(self, done: _Done) -> Any:
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + self._seconds):
                return await done.future
        except TimeoutError:
            raise Busy(f"no answer within {self._seconds:g} s", 5) from None

    def _work(self) -> None:
        turn = False
        while True:
            with self._changed:
                while not (self._waiting or self._explained or self._ends):
                    self._changed.wait()
                if self._ends and not (self._waiting or self._explained):
                    return
            # By turns: neither starves the other.
            if self._waiting and not (turn and self._explained):
                self._batch()
                turn = True
            else:
                self._explain()
                turn = False

    def _batch(self) -> None:
        places = self._next()
        if not places:
            return
        size = next(size for size in self._sizes if size >= len(places))
        chips = np.stack([p.chip for p in places] + [places[-1].chip] * (size - len(places)))
        start = time.perf_counter()
        try:
            neighbours = any(place.neighbours for place in places)
            answers = self.engine.answer(chips, neighbours=neighbours)
        except Exception as error:  # of this batch; the thread goes on
            for done in {place.done for place in places}:
                _settle(done, None, error)
            return
        seconds = time.perf_counter() - start
        self._rate = (
            0.8 * self._rate + 0.2 * len(places) / seconds if self._rate else size / seconds
        )
        self._seen(size, len(places), seconds)
        over = []
        for place, answer in zip(places, answers, strict=False):  # without the filling
            place.answers[place.row] = answer
            place.done.left -= 1
            if not place.done.left:
                over.append(place)
        for place in over:
            _settle(place.done, place.answers, None)

    def _next(self) -> list[_Place]:
        """Takes the chips of the next batch, without those that nobody waits for any more."""
        with self._changed:
            found: list[_Place] = []
            while self._waiting and len(found) < self._sizes[-1]:
                place = self._waiting.popleft()
                if not place.done.given_up:
                    found.append(place)
            keep = _fitting(len(found), self._sizes)
            self._waiting.extendleft(reversed(found[keep:]))
            return found[:keep]

    def _explain(self) -> None:
        chip, done = self._explained.popleft()
        if done.given_up:
            return
        try:
            _settle(done, self.engine.saliency(chip), None)
        except Exception as error:
            _settle(done, None, error)


def _fitting(count: int, sizes: Sequence[int]) -> int:
    """Says how many of the chips that wait are taken at once.

    All of them, where they nearly fill the next size; else as many as the size below.

    >>> [_fitting(count, (1, 4, 16)) for count in (0, 1, 2, 3, 5, 11, 12, 16)]
    [0, 1, 1, 3, 4, 4, 12, 16]
    """
    above = next((size for size in sizes if size >= count), sizes[-1])
    below = max((size for size in sizes if size <= count), default=count)
    return min(count, above) if count >= _FULL * above else min(count, below)


def _settle(done: _Done, result: Any, error: Exception | None) -> None:
    """Ends a request's waiting, in the thread of its event loop."""

    def settle() -> None:
        if done.future.done():
            return
        if error is None:
            done.future.set_result(result)
        else:
            done.future.set_exception(error)

    try:
        done.future.get_loop().call_soon_threadsafe(settle)
    except RuntimeError:  # the loop has ended, and nobody waits
        return
