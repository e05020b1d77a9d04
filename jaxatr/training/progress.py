"""Shows a person how a run goes on: a bar on a terminal, now and then a line elsewhere."""

import io
import math
import sys
import time
from typing import Any

import jax
from tqdm import tqdm

LINE_EVERY = 30.0  # seconds between plain lines


class Progress:
    """Shows the step, images/s, the loss and the time left, on standard error. Used as a context.

    Nothing is shown by processes other than 0.
    """

    def __init__(
        self, total: int, *, step: int, enabled: bool, stream: io.TextIOBase | None = None
    ):
        """Begins at ``step`` of ``total``; ``stream`` is standard error unless given."""
        self._stream: Any = sys.stderr if stream is None else stream
        self._enabled = enabled and jax.process_index() == 0
        self._total, self._first, self._start = total, step, time.monotonic()
        self._next_line = self._start + LINE_EVERY
        terminal = self._enabled and self._stream.isatty()
        self._bar = (
            tqdm(total=total, initial=step, unit="step", file=self._stream, smoothing=0.05)
            if terminal
            else None
        )

    def update(self, step: int, loss: float, images_per_second: float) -> None:
        """Shows that ``step`` steps are done."""
        if self._bar is not None:
            self._bar.set_postfix_str(_figures(loss, images_per_second), refresh=False)
            self._bar.update(step - self._bar.n)
        elif self._enabled and (time.monotonic() >= self._next_line or step == self._total):
            self._next_line = time.monotonic() + LINE_EVERY
            self._line(step, loss, images_per_second)

    def _line(self, step: int, loss: float, images_per_second: float) -> None:
        done = step - self._first
        left = (time.monotonic() - self._start) / max(done, 1) * (self._total - step)
        print(
            f"step {step}/{self._total}, {_figures(loss, images_per_second)}, "
            f"{tqdm.format_interval(left)} left",
            file=self._stream,
            flush=True,
        )

    def note(self, text: str) -> None:
        """Prints a line of its own, above the bar."""
        if self._bar is not None:
            self._bar.write(text, file=self._stream)
        elif self._enabled:
            print(text, file=self._stream, flush=True)

    def __enter__(self) -> "Progress":
        """Returns itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leaves the bar as it stands."""
        if self._bar is not None:
            self._bar.close()


def _figures(loss: float, images_per_second: float) -> str:
    if math.isnan(loss):
        return "compiling"  # a loss is known when the first step is done
    rate = "" if math.isnan(images_per_second) else f"{images_per_second:.0f} images/s, "
    return f"{rate}loss {loss:.4f}"
