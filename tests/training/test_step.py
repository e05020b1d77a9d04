"""The optimiser step and the schedule of phases."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxatr import parallel
from jaxatr.training.state import TrainState
from jaxatr.training.step import Schedule, make_step
from jaxatr.training.task import LossOutput, Phase

RATE = 0.5


def linear_loss(params, model_state, batch, key, step):
    """The loss Σ mask · w · x, whose gradient is Σ mask · x."""
    total = jnp.sum(batch["mask"] * params["w"] * batch["x"])
    state = {"seen": model_state["seen"] + jnp.sum(batch["x"]), "calls": model_state["calls"] + 1}
    return LossOutput(total, jnp.sum(batch["mask"]), {"x": (jnp.sum(batch["x"]), 1.0)}, state)


def take_step(x, mask):
    phase = Phase("only", linear_loss, optax.sgd(RATE), 1)
    params = {"w": np.float32(2.0)}
    model_state = {"seen": np.float32(1.0), "calls": np.int32(0)}
    opt_state = {"only": phase.optimizer.init(params)}
    state = TrainState(np.int32(0), params, model_state, opt_state, jax.random.key(0))
    devices = jax.local_devices()[:1]
    batch = {"x": np.float32(x), "mask": np.float32(mask)}
    step = make_step(phase, devices)
    new, sums = step(
        parallel.replicate(state, devices), parallel.shard(batch, 1), np.ones(1, np.int32)
    )
    return jax.device_get(parallel.unreplicate((new, sums)))


def test_the_gradient_is_of_the_mean_over_the_selected():
    state, sums = take_step([1.0, 2.0, 6.0, 9.0], [1, 0, 1, 0])
    assert state.params["w"] == 2.0 - RATE * (1.0 + 6.0) / 2
    assert sums["loss"] == (14.0, 2.0)
    assert sums["x"] == (18.0, 1.0)
    assert sums["stop"] == (1, 1)
    assert state.step == 1
    assert state.model_state == {"seen": 19.0, "calls": 1}


def test_a_batch_that_selects_nothing_changes_nothing():
    state, sums = take_step([1.0, 2.0], [0, 0])
    assert state.params["w"] == 2.0
    assert sums["loss"] == (0.0, 0.0)


def test_the_schedule_repeats_its_phases():
    phases = [
        Phase(name, linear_loss, optax.sgd(1.0), steps) for name, steps in [("a", 2), ("b", 1)]
    ]
    schedule = Schedule(phases, 2)
    assert schedule.steps == 6
    assert "".join(schedule.phase(step).name for step in range(6)) == "aabaab"


@pytest.mark.parametrize(
    "steps, cycles, match",
    [([0], 1, r"steps=\{'p0': 0\}"), ([1], 0, "cycles=0"), ([], 1, r"phases: got \[\]")],
)
def test_a_schedule_has_steps(steps, cycles, match):
    phases = [Phase(f"p{i}", linear_loss, optax.sgd(1.0), n) for i, n in enumerate(steps)]
    with pytest.raises(ValueError, match=match):
        Schedule(phases, cycles)
