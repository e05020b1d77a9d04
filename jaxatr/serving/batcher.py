"""Groups the chips of many requests into batches of a few sizes; one thread computes them.

All sizes are compiled before the first request. A batch takes the chips that are waiting when the
previous batch is done: no chip waits for a batch to fill up, and batches become larger under load.
"""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from jaxatr.serving.engine import Answer
from jaxatr.typing import Float, Shaped

Chip = Shaped[np.ndarray, "h w c"]

_FULL = 0.75
"""Least share of chips in a padded batch; with fewer, the next smaller size is used."""


@runtime_checkable  # the tests check annotations at run time
class Computes(Protocol):
    """The computations of :class:`jaxatr.serving.engine.Engine`, called by one thread."""

    def answer(
        self, chips: np.ndarray, *, neighbours: bool = False, scores: Collection[str] = ()
    ) -> list[Answer]:
        """Predicts each chip of a batch ``[b, h, w, c]``."""
        ...

    def saliency(self, chip: np.ndarray) -> tuple[str, np.ndarray]:
        """Returns the nearest class of a chip and the saliency map for it."""
        ...


class Busy(Exception):
    """Too many chips are waiting; the message is for the client.

    Attributes:
      seconds: seconds after which the client may try again.
    """

    def __init__(self, message: str, seconds: int):
        super().__init__(message)
        self.seconds = seconds


class _Place(NamedTuple):
    """A waiting chip, and where its answer goes: ``answers[row]``."""

    chip: Chip
    neighbours: bool
    scores: Collection[str]
    answers: list[Any]
    row: int
    done: "_Done"


class _Done:
    """The completion of one request: a future, and the number of its chips still to compute."""

    def __init__(self, count: int, deadline: float):
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.left, self.deadline = count, deadline

    @property
    def given_up(self) -> bool:
        return self.future.done() or time.monotonic() > self.deadline


class Batcher:
    """The queue of waiting chips, and the thread that computes them.

    Attributes:
      engine: the engine for the next batch; it may be replaced by another of the same run at any
        time.
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
        """Sets up the queue; :meth:`start` starts the thread.

        Args:
          engine: an engine that is compiled for the sizes.
          sizes: batch sizes, ascending.
          most: largest number of waiting chips.
          seconds: longest time that a chip waits for its answer.
          seen: called after each batch with its size, the number of chips in it, and the seconds
            that it took.
        """
        self.engine, self._sizes, self._most, self._seconds = engine, tuple(sizes), most, seconds
        self._seen = seen
        self._waiting: deque[_Place] = deque()
        self._explained: deque[tuple[Chip, _Done]] = deque()
        self._changed = threading.Condition()
        self._ends = False
        self._rate = 0.0  # chips per second, a moving average
        self._thread = threading.Thread(target=self._work, name="jaxatr-compute", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self, seconds: float | None = None) -> bool:
        """Computes the waiting chips, and ends the thread; returns whether it has ended.

        Args:
          seconds: longest time to wait; None to wait for as long as it takes.
        """
        with self._changed:
            self._ends = True
            self._changed.notify()
        self._thread.join(seconds)
        return not self.alive

    @property
    def alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    @property
    def waiting(self) -> int:
        """The number of waiting chips."""
        return len(self._waiting) + len(self._explained)

    def check(self, count: int) -> None:
        """Checks that there is room for more chips in the queue.

        Raises:
          Busy: there is not.
        """
        waiting = self.waiting
        if waiting and waiting + count > self._most:
            seconds = math.ceil(waiting / self._rate) if self._rate else 1
            raise Busy(f"{waiting} chips are waiting", max(1, min(60, seconds)))

    async def answer(
        self, chips: Sequence[Chip], *, neighbours: bool = False, scores: Collection[str] = ()
    ) -> list[Answer | Exception]:
        """Predicts chips, in order.

        Args:
          chips: one or more chips.
          neighbours: whether to return the nearest training chips.
          scores: names of scores to decide by, in addition to the run's own.

        Returns:
          The answers; the error of a chip for which there is none.

        Raises:
          Busy: the queue is full, or there was no answer in time.
          Exception: there is no answer for any chip.
        """
        self.check(len(chips))
        done, answers = self._done(len(chips)), [None] * len(chips)
        places = [
            _Place(chip, neighbours, scores, answers, row, done) for row, chip in enumerate(chips)
        ]
        with self._changed:
            self._waiting.extend(places)
            self._changed.notify()
        found: list[Answer | Exception] = await self._until(done)
        if isinstance(found[0], Exception) and all(isinstance(one, Exception) for one in found):
            raise found[0]
        return found

    async def explain(self, chip: Chip) -> tuple[str, Float[np.ndarray, "h w"]]:
        """Explains the nearest class of a chip; explanations take turns with batches.

        Returns:
          The class, and the saliency map.

        Raises:
          Busy: the queue is full, or there was no answer in time.
          ValueError: the run is served without saliency maps.
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
            # Batches and explanations take turns, so that neither starves the other.
            if self._waiting and not (turn and self._explained):
                self._batch()
                turn = True
            else:
                self._explain()
                turn = False

    def _batch(self) -> None:
        if places := self._next():
            try:
                answers = self._computed(places)
            except Exception:  # it may be that of one chip: the others get their answers
                answers = [self._alone(place) for place in places]
            for place, answer in zip(places, answers, strict=False):  # without the padding
                place.answers[place.row] = answer
                place.done.left -= 1
                if not place.done.left:
                    _settle(place.done, place.answers, None)

    def _alone(self, place: _Place) -> Answer | Exception:
        """Computes one chip; returns the answer, or the error in its place."""
        try:
            return self._computed([place])[0]
        except Exception as error:
            return error

    def _computed(self, places: Sequence[_Place]) -> list[Answer]:
        """Computes the chips of a batch, and the padding up to its size."""
        size = next(size for size in self._sizes if size >= len(places))
        start = time.perf_counter()
        chips = np.stack([p.chip for p in places] + [places[-1].chip] * (size - len(places)))
        neighbours = any(place.neighbours for place in places)
        scores = {name for place in places for name in place.scores}
        answers = self.engine.answer(chips, neighbours=neighbours, scores=scores)
        seconds = time.perf_counter() - start
        self._rate = (
            0.8 * self._rate + 0.2 * len(places) / seconds if self._rate else size / seconds
        )
        self._seen(size, len(places), seconds)
        return answers

    def _next(self) -> list[_Place]:
        """Takes the chips of the next batch off the queue, dropping those of abandoned requests."""
        with self._changed:
            places: list[_Place] = []
            while self._waiting and len(places) < self._sizes[-1]:
                place = self._waiting.popleft()
                if not place.done.given_up:
                    places.append(place)
            keep = _fitting(len(places), self._sizes)
            self._waiting.extendleft(reversed(places[keep:]))
            return places[:keep]

    def _explain(self) -> None:
        chip, done = self._explained.popleft()
        if done.given_up:
            return
        try:
            _settle(done, self.engine.saliency(chip), None)
        except Exception as error:
            _settle(done, None, error)


def _fitting(count: int, sizes: Sequence[int]) -> int:
    """Returns how many of ``count`` waiting chips the next batch takes.

    All of them if they nearly fill the next larger size; otherwise the next smaller size.

    >>> [_fitting(count, (1, 4, 16)) for count in (0, 1, 2, 3, 5, 11, 12, 16)]
    [0, 1, 1, 3, 4, 4, 12, 16]
    """
    above = next((size for size in sizes if size >= count), sizes[-1])
    below = max((size for size in sizes if size <= count), default=count)
    return min(count, above) if count >= _FULL * above else min(count, below)


def _settle(done: _Done, result: Any, error: Exception | None) -> None:
    """Sets the result of a request's future, in the thread of its event loop."""

    def settle() -> None:
        if done.future.done():
            return
        if error is None:
            done.future.set_result(result)
        else:
            done.future.set_exception(error)

    try:
        done.future.get_loop().call_soon_threadsafe(settle)
    except RuntimeError:  # the loop is closed: the request is gone
        return
