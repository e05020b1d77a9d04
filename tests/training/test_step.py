"""The optimiser step and the schedule of phases."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxatr import parallel
from jaxatr.models.resnet import BasicBlock, ResNet
from jaxatr.training.state import TrainState
from jaxatr.training.step import Schedule, keep_less, make_step
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


def test_the_mean_is_over_weights_whose_sum_is_below_one():
    state, _ = take_step([1.0, 2.0, 6.0], [0.25, 0, 0.25])
    assert state.params["w"] == 2.0 - RATE * (0.25 * 1.0 + 0.25 * 6.0) / 0.5


def test_a_batch_that_selects_nothing_changes_nothing():
    state, sums = take_step([1.0, 2.0], [0, 0])
    assert state.params["w"] == 2.0
    assert sums["loss"] == (0.0, 0.0)


def network_loss(params, model_state, batch, key, step):
    """A loss of a small residual network."""
    features, new = NETWORK.apply(
        {"params": params, **model_state}, batch["x"], train=True, mutable=["batch_stats"]
    )
    return LossOutput(jnp.sum(jnp.square(features)), jnp.float32(len(batch["x"])), {}, new)


NETWORK = ResNet((1, 1), BasicBlock, width=8, stem="3x3", axis_name=parallel.AXIS)
IMAGES = np.random.default_rng(0).normal(size=(8, 32, 32, 1)).astype(np.float32)


@pytest.fixture(scope="module")
def variables():
    return jax.jit(NETWORK.init)(jax.random.key(0), IMAGES)


@pytest.mark.slow
def test_a_rematerialised_step_learns_the_same(variables):
    params, model_state = variables["params"], {"batch_stats": variables["batch_stats"]}
    phase, devices = Phase("only", network_loss, optax.sgd(RATE), 1), jax.local_devices()[:1]
    opt_state = {"only": phase.optimizer.init(params)}
    state = TrainState(np.int32(0), params, model_state, opt_state, jax.random.key(0))
    batch, stop = parallel.shard({"x": IMAGES}, 1), np.ones(1, np.int32)
    kept, remat = (
        make_step(phase, devices, remat=remat)(parallel.replicate(state, devices), batch, stop)[0]
        for remat in (False, True)
    )
    same = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
    jax.tree.map(same, kept.params, remat.params)
    jax.tree.map(same, kept.model_state, remat.model_state)


def test_less_is_kept_for_the_backward_pass(variables):
    def loss(params):
        network = NETWORK.clone(axis_name=None)
        given = {**variables, "params": params}
        return jnp.sum(network.apply(given, IMAGES, train=True, mutable=["batch_stats"])[0])

    def kept(function):
        backward = jax.eval_shape(lambda params: jax.vjp(function, params)[1], variables["params"])
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(backward))

    assert kept(keep_less(loss)) < 0.5 * kept(loss)


def test_the_schedule_repeats_its_phases():
    phases = [
        Phase(name, linear_loss, optax.sgd(1.0), steps) for name, steps in [("a", 2), ("b", 1)]
    ]
    schedule = Schedule(phases, 2)
    assert schedule.steps == 6
    assert "".join(schedule.phase(step).name for step in range(6)) == "aabaab"
    assert Schedule([], 1).steps == 0


@pytest.mark.parametrize(
    "steps, cycles, match",
    [([0], 1, r"steps=\{'p0': 0\}"), ([1], 0, "cycles=0")],
)
def test_a_schedule_has_steps(steps, cycles, match):
    phases = [Phase(f"p{i}", linear_loss, optax.sgd(1.0), n) for i, n in enumerate(steps)]
    with pytest.raises(ValueError, match=match):
        Schedule(phases, cycles)
