"""Averaging of training metrics, read with a delay so that the devices never wait."""

import math
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

LAG = 2  # steps that the host may be ahead of the devices

RISEN = 10.0
"""A loss is reported as exploding if it exceeds this multiple of the phase's first loss (or of 1,
if that was smaller)."""


class NonFiniteLoss(FloatingPointError):
    """The loss, or a parameter about to be saved, is infinite or NaN."""


class ExplodingLoss(UserWarning):
    """The loss has risen to many times its initial value."""


class Meter:
    """Collects the metrics of steps and emits a record of their means every ``log_every`` steps.

    A step's metrics are read :data:`LAG` steps later, so that dispatch stays ahead of the devices
    while every loss is still checked. :meth:`drain` reads the remaining ones; after it, all losses
    up to the current state are known to be finite.

    Attributes:
      stop: whether any process was asked to stop; all processes see it at the same step.
    """

    def __init__(self, log_every: int, total: int, emit: Callable[[dict[str, Any]], None]):
        self._log_every, self._total, self._emit = log_every, total, emit
        self._pending: deque[tuple] = deque()
        self._windows: dict[str, dict[str, list[float]]] = {}
        self._epochs: dict[str, int] = {}
        self._first: dict[str, float] = {}
        self._warned: set[str] = set()
        self._images, self._since = 0, None
        self.stop = False
        self.images_per_second = math.nan
        self.loss = math.nan

    def push(self, step: int, phase: str, sums: Any, images: int, epoch: int | None) -> None:
        """Adds the metrics of step number ``step`` (from 1), which may still be pending."""
        self._pending.append((step, phase, sums, images, epoch))
        while len(self._pending) > LAG:
            self._absorb(*self._pending.popleft())

    def drain(self) -> None:
        """Waits for all steps so far.

        Raises:
          NonFiniteLoss: the loss of a step is infinite or NaN.
        """
        while self._pending:
            self._absorb(*self._pending.popleft())

    def _absorb(self, step: int, phase: str, sums: Any, images: int, epoch: int | None) -> None:
        values = {name: [_scalar(part) for part in pair] for name, pair in sums.items()}
        self.stop |= values.pop("stop")[0] > 0
        total, count = values["loss"]
        self.loss = total / count if count else math.nan
        if not math.isfinite(total):
            raise NonFiniteLoss(
                f"the loss of step {step} (phase {phase!r}) is {total}: lower "
                "optimizer.learning_rate, or set optimizer.clip_norm"
            )
        if count:
            self._first.setdefault(phase, self.loss)
        window = self._windows.setdefault(phase, {})
        for name, (value, weight) in values.items():
            entry = window.setdefault(name, [0.0, 0.0])
            entry[0] += value
            entry[1] += weight
        if epoch is not None:
            self._epochs[phase] = epoch
        self._tick(images)
        if step % self._log_every == 0 or step == self._total:
            self._flush(step)

    def _tick(self, images: int) -> None:
        """Counts images, except for those of the first step, which includes compilation."""
        if self._since is None:
            self._since = time.perf_counter()
        else:
            self._images += images
            self.images_per_second = self._images / (time.perf_counter() - self._since)

    def _flush(self, step: int) -> None:
        for phase, window in self._windows.items():
            epoch = {"epoch": self._epochs[phase]} if phase in self._epochs else {}
            means = {
                name: value / weight if weight else None for name, (value, weight) in window.items()
            }
            rate = round(self.images_per_second, 1)  # NaN, written as null, after the first step
            record = {"step": step, "phase": phase, **epoch, **means, "images_per_second": rate}
            self._emit(record)
            self._compare(phase, step, means["loss"])
        self._windows = {}
        self._images, self._since = 0, time.perf_counter()

    def _compare(self, phase: str, step: int, loss: float | None) -> None:
        """Warns, once for each phase, if the loss has risen to many times its initial value."""
        first = self._first.get(phase)
        if loss is None or first is None or phase in self._warned:
            return
        if loss <= RISEN * max(first, 1.0):
            return
        self._warned.add(phase)
        warnings.warn(
            f"the loss of phase {phase!r} is {loss:.4g} at step {step}, and was {first:.4g} at "
            "its first step: lower optimizer.learning_rate, raise optimizer.warmup_epochs, or set "
            "optimizer.clip_norm; with pretrained weights, set optimizer.backbone_factor to 0.01 "
            "or less, or model.freeze",
            ExplodingLoss,
            stacklevel=2,
        )

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time spent inside (evaluation, saving) from images per second."""
        start = time.perf_counter()
        yield
        if self._since is not None:
            self._since += time.perf_counter() - start

    def get_state(self) -> dict[str, Any]:
        """Returns the accumulated metrics as JSON values, for the checkpoint."""
        return {"windows": self._windows, "epochs": self._epochs, "first": self._first}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores a state from :meth:`get_state`."""
        self._windows, self._epochs = state["windows"], state["epochs"]
        self._first = state.get("first", {})  # missing in checkpoints of earlier versions


def _scalar(value: Any) -> float:
    shards = getattr(value, "addressable_shards", None)
    return float(np.ravel(value if shards is None else shards[0].data)[0])
