"""Watches what a console decides, by source and hour, and whether its chips look as in training."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from jaxatr.recognition.drift import Drift, Reference, Watch
from jaxatr.typing import Float

_LOG = logging.getLogger(__name__)

WINDOW = 200
"""Number of chips of a source that are compared at once."""

OTHERS = "others"
"""Source of the chips of all sources beyond :data:`MOST_SOURCES`."""

MOST_SOURCES = 64
"""Largest number of sources, whose clients could name any number."""

MOST_HOURS = 48
"""Number of hours whose counts are kept."""


class Seen(NamedTuple):
    """A chip that the console has decided about.

    Attributes:
      facts: its facts, in the order of :data:`jaxatr.data.FACTS`.
      score: the score by which the run decides; None if it is not finite.
      label: the run's verdict.
      unknown: whether it is "unknown".
      reference: what it is compared with.
    """

    facts: Float[np.ndarray, " f"]
    score: float | None
    label: str
    unknown: bool
    reference: Reference


class Hour:
    """Counts of a source in an hour.

    Attributes:
      chips, unknown: numbers of chips, and of unknown ones.
      windows, drifts: numbers of full windows, and of those with a drift.
    """

    def __init__(self):
        """Starts with zeros."""
        self.chips = self.unknown = self.windows = self.drifts = 0


class Drifting:
    """Compares each window of :data:`WINDOW` consecutive chips of a source with the run's training.

    So the probability of a false alarm in a window is that of one test. Threads may share it.

    Attributes:
      last: the comparison of the last full window; None before the first.
      source: the source of that window.
      windows: number of full windows.
    """

    def __init__(self, reference: Reference, compared: Callable[[str, Drift], object]):
        """Takes the reference, and what to call with the source after each comparison."""
        self._reference, self._compared = reference, compared
        self._watches: dict[str, Watch] = {}
        self._hours: dict[tuple[int, str], Hour] = {}
        self._lock = threading.Lock()
        self.last: Drift | None = None
        self.source = ""
        self.windows = 0

    @property
    def waiting(self) -> int:
        """The number of chips that are in no full window."""
        with self._lock:
            return sum(map(len, self._watches.values()))

    def replace(self, reference: Reference) -> None:
        """Starts new windows with another reference, that of a decision with enrolled classes."""
        with self._lock:
            self._watches = {source: Watch(reference) for source in self._watches}
            self._reference, self.last = reference, None

    def known(self, source: str) -> str:
        """Returns the name that a source is counted under."""
        with self._lock:
            if source not in self._watches:
                if len(self._watches) >= MOST_SOURCES:
                    source = OTHERS
                self._watches.setdefault(source, Watch(self._reference))
        return source

    def compares(self, source: str, count: int) -> bool:
        """Whether that many further chips fill the window of a source, and are then compared."""
        with self._lock:
            return len(self._watches[source]) + count >= WINDOW

    def add(self, source: str, chips: Iterable[Seen]) -> None:
        """Adds chips of a source, which :meth:`known` has named.

        Those that were decided about before the reference was replaced are only counted.
        """
        full = []
        with self._lock:
            hour = self._hour(source)
            for chip in chips:
                hour.chips += 1
                hour.unknown += chip.unknown
                watch = self._watches[source]
                if chip.reference is not self._reference:
                    continue
                watch.measured(chip.facts)
                watch.scored(chip.score)
                if len(watch) == WINDOW:
                    self._watches[source] = Watch(self._reference)
                    full.append(watch)
        for watch in full:  # without the lock, for which requests would wait
            self._compare(source, watch, hour)

    def _hour(self, source: str) -> Hour:
        return self._hours.setdefault((self._forget(), source), Hour())

    def _forget(self) -> int:
        """Deletes the counts of hours that are too long ago, and returns the present hour."""
        now = int(time.time()) // 3600
        for key in [key for key in self._hours if key[0] <= now - MOST_HOURS]:
            del self._hours[key]
        return now

    def _compare(self, source: str, watch: Watch, hour: Hour) -> None:
        found = watch.drift()
        with self._lock:
            if watch.reference is not self._reference:
                return  # it has been replaced since
            self.last, self.source, self.windows = found, source, self.windows + 1
            hour.windows += 1
            hour.drifts += bool(found.found)
        if found.found:
            _LOG.warning("%s: %s", source, found.sentence())
        self._compared(source, found)

    def hours(self) -> list[dict[str, str | int]]:
        """Returns the counts of the last hours by source, the oldest first."""
        with self._lock:
            self._forget()
            return [
                {
                    "hour": time.strftime("%Y-%m-%dT%H:00:00Z", time.gmtime(3600 * hour)),
                    "source": source,
                    **vars(counts),
                }
                for (hour, source), counts in sorted(self._hours.items(), key=lambda one: one[0])
            ]
