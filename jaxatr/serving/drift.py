"""Watches whether the served chips still look like those that the run was fitted to."""

import logging
import threading
from collections.abc import Callable, Iterable

import numpy as np

from jaxatr.recognition.drift import Drift, Reference, Watch

_LOG = logging.getLogger(__name__)

WINDOW = 200
"""Number of chips that are compared at once."""


class Drifting:
    """Compares each window of :data:`WINDOW` consecutive chips with the run's reference, once.

    So the probability of a false alarm in a window is that of one test. Threads may share it.

    Attributes:
      last: the comparison of the last full window; None before the first.
      windows: number of full windows.
    """

    def __init__(self, reference: Reference, compared: Callable[[Drift], object]):
        """Takes the reference, and what to call after each comparison."""
        self._watch, self._compared = Watch(reference), compared
        self._lock = threading.Lock()
        self.last: Drift | None = None
        self.windows = 0

    @property
    def waiting(self) -> int:
        """The number of chips since the last full window."""
        return len(self._watch)

    def replace(self, reference: Reference) -> None:
        """Starts a new window with another reference, that of a decision with enrolled classes."""
        with self._lock:
            self._watch, self.last = Watch(reference), None

    def add(self, chips: Iterable[tuple[np.ndarray, float | None]]) -> None:
        """Adds chips with their scores; the score is None if it is not finite."""
        with self._lock:
            for chip, score in chips:
                self._watch.seen(chip)
                self._watch.scored(score)
                if len(self._watch) == WINDOW:
                    self._compare()

    def _compare(self) -> None:
        self.last, self.windows = self._watch.drift(), self.windows + 1
        self._watch = Watch(self._watch.reference)
        if self.last.found:
            _LOG.warning(self.last.sentence())
        self._compared(self.last)
