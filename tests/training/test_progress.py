"""The progress bar on a terminal, and lines otherwise."""

import io

import pytest

from jaxatr.training import progress
from jaxatr.training.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_a_bar():
    stream = Terminal()
    with Progress(10, step=4, enabled=True, stream=stream) as bar:
        bar.update(5, 0.25, 123.4)
        bar.note("step 5: accuracy 0.5")
        bar.update(10, 0.125, 200.0)
    shown = stream.getvalue()
    assert "10/10" in shown and "200 images/s" in shown and "loss 0.1250" in shown
    assert "step 5: accuracy 0.5\n" in shown


def test_a_file_gets_a_line_now_and_then(monkeypatch):
    stream, clock = io.StringIO(), iter([0.0, 11.0, 12.0, 13.0, 31.0, 32.0, 70.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    nan = float("nan")
    with Progress(100, step=0, enabled=True, stream=stream) as bar:
        bar.update(1, nan, nan)  # compiled for 11 seconds
        bar.update(2, 0.5, nan)
        bar.update(3, 0.5, 50.0)
        bar.update(22, 0.4, 50.0)
        bar.update(23, 0.3, 50.0)
        bar.update(100, 0.2, 50.0)
        bar.note("done")
    assert stream.getvalue().splitlines() == [
        "step 0/100, compiling",
        "step 1/100, compiling",
        "step 22/100, 50 images/s, loss 0.4000, 01:14 left",  # 20 steps in 19 seconds
        "step 100/100, 50 images/s, loss 0.2000, 00:00 left",
        "done",
    ]


def test_a_bar_leaves_compiling_out_of_the_time_left():
    stream = Terminal()
    with Progress(10, step=0, enabled=True, stream=stream) as bar:
        assert "compiling" in stream.getvalue()
        before = bar._bar.start_t
        bar.update(1, float("nan"), float("nan"))
        bar.update(2, 0.5, 10.0)
        assert bar._bar.start_t > before


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_it_can_be_switched_off(stream):
    with Progress(2, step=0, enabled=False, stream=stream) as bar:
        bar.update(2, 0.5, 10.0)
        bar.note("x")
    assert stream.getvalue() == ""
