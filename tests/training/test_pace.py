"""When the steps of a training are dispatched."""

import jax.numpy as jnp
import pytest

from jaxatr import memory
from jaxatr.training import pace

RESULT = jnp.zeros(())


@pytest.fixture
def waits(monkeypatch):
    """The results that the host waited for."""
    waited = []
    monkeypatch.setattr(pace, "_wait", waited.append)
    monkeypatch.setattr(memory, "give_back", lambda: None)
    monkeypatch.setattr(memory, "separate_large", lambda: None)
    return waited


def run(monkeypatch, during, after):
    """Does three steps whose program allocates ``during`` bytes, and ``after`` once it is over."""
    readings = iter([during, after])
    monkeypatch.setattr(memory, "allocated", lambda: next(readings))
    paced = pace.Pace()
    for number in range(3):
        paced.wait()
        paced.dispatched("step", RESULT + number)


def test_small_steps_are_dispatched_ahead_of_the_devices(monkeypatch, waits):
    run(monkeypatch, during=memory.LARGE * 3 - 1, after=memory.LARGE * 2)
    assert waits == [0]  # the first step, which compiles


def test_a_large_step_is_over_before_the_next_one_begins(monkeypatch, waits):
    run(monkeypatch, during=memory.LARGE * 3, after=memory.LARGE * 2)
    assert waits == [0, 0, 1]


def test_each_phase_is_judged_by_its_own_step(monkeypatch, waits):
    readings = iter([memory.LARGE, 0, 0, 0])  # large, then small
    monkeypatch.setattr(memory, "allocated", lambda: next(readings))
    paced = pace.Pace()
    for number, phase in enumerate(["large", "small", "small", "large", "small"]):
        paced.wait()
        paced.dispatched(phase, RESULT + number)
    assert waits == [0, 0, 1, 3]  # both first steps, and the large ones before others
