"""The bar on a terminal and the lines elsewhere."""

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
    stream, clock = io.StringIO(), iter([0.0, 10.0, 31.0, 31.0, 31.0, 40.0, 62.0, 62.0, 62.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with Progress(100, step=0, enabled=True, stream=stream) as bar:
        bar.update(10, 0.5, float("nan"))
        bar.update(31, 0.4, 50.0)
        bar.update(40, 0.3, 50.0)
        bar.update(100, 0.2, 50.0)
        bar.note("done")
    assert stream.getvalue().splitlines() == [
        "step 31/100, 50 images/s, loss 0.4000, 01:09 left",
        "step 100/100, 50 images/s, loss 0.2000, 00:00 left",
        "done",
    ]


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_it_can_be_switched_off(stream):
    with Progress(2, step=0, enabled=False, stream=stream) as bar:
        bar.update(2, 0.5, 10.0)
        bar.note("x")
    assert stream.getvalue() == ""
