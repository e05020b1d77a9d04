"""Progress of a run: a bar on a terminal, and occasional lines otherwise."""

import io
import math
import sys
import time
from typing import Any

import jax
from tqdm import tqdm

LINES = 2.0, 30.0
"""Seconds to the first plain line, and maximum seconds between lines; the interval doubles."""


_COMPILING = "compiling"


class Progress:
    """Shows the step, images/s, the loss and the remaining time on standard error.

    A context manager. The remaining time is estimated from the steps after the first, which
    includes compilation. Only process 0 shows anything.
    """

    def __init__(
        self, total: int, *, step: int, enabled: bool, stream: io.TextIOBase | None = None
    ):
        self._stream: Any = sys.stderr if stream is None else stream
        self._enabled = enabled and jax.process_index() == 0
        self._total, self._step = total, step
        self._compiled: tuple[int, float] | None = None  # the first step with a loss, and its time
        self._pause = LINES[0]
        self._next_line = time.monotonic() + self._pause
        terminal = self._enabled and self._stream.isatty()
        self._bar = (
            tqdm(total=total, initial=step, unit="step", file=self._stream, smoothing=0.05)
            if terminal
            else None
        )

    def update(self, step: int, loss: float, images_per_second: float) -> None:
        """Shows the state after ``step`` steps."""
        now, known = time.monotonic(), not math.isnan(loss)
        if self._bar is not None:
            if known and self._compiled is None:
                self._bar.unpause()  # excludes the compilation time from the remaining time
            self._bar.set_postfix_str(_figures(loss, images_per_second), refresh=False)
            self._bar.update(step - self._bar.n)
        elif self._enabled and (now >= self._next_line or step == self._total):
            self._pause = min(2 * self._pause, LINES[1])
            self._next_line = now + self._pause
            text = f"step {step}/{self._total}, {_figures(loss, images_per_second)}"
            self._line(text + self._left(step, now))
        if known and self._compiled is None:
            self._compiled = step, now

    def _left(self, step: int, now: float) -> str:
        if self._compiled is None or step == self._compiled[0]:
            return ""
        first, start = self._compiled
        seconds = (now - start) / (step - first) * (self._total - step)
        return f", {tqdm.format_interval(seconds)} left"

    def _line(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def note(self, text: str) -> None:
        """Prints a separate line, above the bar."""
        if self._bar is not None:
            self._bar.write(text, file=self._stream)
        elif self._enabled:
            self._line(text)

    def __enter__(self) -> "Progress":
        """Shows that the first step is being compiled, and returns itself."""
        if self._bar is not None:
            self._bar.set_postfix_str(_COMPILING)
        elif self._enabled and self._step < self._total:
            self._line(f"step {self._step}/{self._total}, {_COMPILING}")
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the bar, which stays visible."""
        if self._bar is not None:
            self._bar.close()


def _figures(loss: float, images_per_second: float) -> str:
    if math.isnan(loss):
        return _COMPILING  # the loss is unknown until the first step is done
    rate = "" if math.isnan(images_per_second) else f"{images_per_second:.0f} images/s, "
    return f"{rate}loss {loss:.4f}"
