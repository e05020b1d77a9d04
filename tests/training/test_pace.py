"""When the steps of a training are dispatched."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import memory
from jaxatr.training.pace import _LARGE as LARGE
from jaxatr.training.pace import Pace


def sorted_table(state, numbers):
    """A step whose temporary array is the square of its numbers, and whose results are one."""
    table = jnp.sort(numbers[:, None] * numbers[None] + state, axis=0)
    return state + 1, jnp.sum(jnp.sort(table, axis=1)[0])


@pytest.fixture
def log(monkeypatch):
    """Steps, results that are waited for, and memory given back, in order."""
    done = []
    monkeypatch.setattr(memory, "give_back", lambda: done.append("give back"))
    monkeypatch.setattr(memory, "reserve", lambda size: done.append(f"reserve {size}"))
    monkeypatch.setattr(jax, "block_until_ready", lambda results: done.append(f"wait {results}"))
    return done


def step_with(log, temporary) -> Any:
    """A step, numbered, whose program has so many bytes of temporary arrays."""
    analysis = None if temporary is None else SimpleNamespace(temp_size_in_bytes=temporary)
    compiled = SimpleNamespace(memory_analysis=lambda: analysis)

    def step(number) -> tuple[Any, int]:
        log.append(f"step {number}")
        return number + 1, int(number)

    step.lower = lambda number: SimpleNamespace(compile=lambda: compiled)
    return step


@pytest.mark.parametrize(("temporary", "known"), [(LARGE - 1, LARGE - 1), (None, 0)])
def test_small_steps_are_dispatched_ahead_of_the_devices(log, temporary, known):
    pace, state = Pace(), jnp.int32(0)
    for _ in range(3):
        state, _ = pace.dispatch("step", step_with(log, temporary), state)
    assert log == ["give back", f"reserve {known}", "step 0", "step 1", "step 2"]


def test_a_large_step_is_over_before_the_next_one_begins(log):
    pace, state = Pace(), jnp.int32(0)
    for _ in range(3):
        state, _ = pace.dispatch("step", step_with(log, LARGE), state)
    ready = ["give back", f"reserve {LARGE}"]
    assert log == [*ready, "step 0", "wait 0", "step 1", "wait 1", "step 2"]


def test_each_phase_is_judged_by_its_own_step(log):
    large, small = step_with(log, LARGE), step_with(log, 7)
    pace, state = Pace(), jnp.int32(0)
    for name in ["large", "small", "small", "large", "small"]:
        state, _ = pace.dispatch(name, large if name == "large" else small, state)
    steps = ["give back", f"reserve {LARGE}", "step 0", "give back", "reserve 7", "wait 0"]
    assert log == [*steps, "step 1", "step 2", "step 3", "wait 3", "step 4"]


def test_a_program_tells_its_memory_and_is_compiled_once(monkeypatch, compiler_events):
    sizes = []
    monkeypatch.setattr(memory, "reserve", sizes.append)
    # Of its own, because jax compiles the same function and shapes once in a process.
    step, pace, state = jax.jit(lambda *given: sorted_table(*given)), Pace(), jnp.int32(2)
    numbers = np.arange(1024, dtype=np.float32)  # their table takes 4 MiB
    compiler_events.clear()
    state, total = pace.dispatch("step", step, state, numbers)
    state, _ = pace.dispatch("step", step, state, numbers)
    assert compiler_events.count("backend_compile_duration") == 1
    assert len(sizes) == 1 and 4 << 20 <= sizes[0] < 1 << 30
    assert state == 4 and total == 2 * len(numbers)
