"""The average of the parameters: its recursion, its parameters, and its use."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxatr import training
from jaxatr.training.average import AVERAGE, next_average, start_average
from jaxatr.training.state import create_state, evaluated_params
from jaxatr.training.step import Schedule
from jaxatr.training.task import Phase


def phase(name, *trained):
    return Phase(name, lambda *_: None, optax.sgd(0.1), 1, lambda path: path[0] in trained)


FIRST, SECOND = phase("first", "a"), phase("second", "b")
PARAMS = {"a": {"w": jnp.float32(1.0)}, "b": jnp.arange(3.0), "frozen": jnp.float32(5.0)}


def test_it_is_the_recursion_written_out():
    average, expected, decay = start_average(PARAMS, [FIRST]), 1.0, 0.3
    for step, value in enumerate((4.0, -2.0, 0.5, 8.0, 1.0)):
        params = PARAMS | {"a": {"w": jnp.float32(value)}}
        average = next_average(average, params, FIRST, decay)
        kept = min(decay, (1 + step) / (10 + step))
        expected = kept * expected + (1 - kept) * value
        np.testing.assert_allclose(average["params"]["a"]["w"], expected, rtol=1e-6)
    assert average["steps"]["first"] == 5 and set(average["params"]) == {"a"}


def test_empty_dictionaries_remain():
    params = PARAMS | {"target": {}}
    average = start_average(params, [FIRST])
    assert evaluated_params(params, {AVERAGE: average}) == params


def test_each_phase_begins_anew_and_the_other_part_comes_to_rest():
    average = start_average(PARAMS, [FIRST, SECOND])
    assert set(average["params"]) == {"a", "b"}
    moved = PARAMS | {"a": {"w": jnp.float32(2.0)}}
    average = next_average(average, moved, FIRST, 0.9)
    np.testing.assert_array_equal(average["params"]["b"], PARAMS["b"])  # at rest, to the bit
    before = float(average["params"]["a"]["w"])
    moved["b"] = PARAMS["b"] + 10
    average = next_average(average, moved, SECOND, 0.9)
    np.testing.assert_allclose(average["params"]["b"], PARAMS["b"] + 9, rtol=1e-6)
    np.testing.assert_allclose(average["params"]["a"]["w"], 2 - 0.9 * (2 - before), rtol=1e-6)


def test_averaged_parameters_are_evaluated():
    assert evaluated_params(PARAMS, {"first": ()}) is PARAMS
    average = start_average(PARAMS, [FIRST])
    average["params"]["a"]["w"] = jnp.float32(7.0)
    found = evaluated_params(PARAMS, {AVERAGE: average})
    assert found["a"]["w"] == 7.0 and found["frozen"] == 5.0 and set(found) == set(PARAMS)


def test_no_phase_has_its_name():
    with pytest.raises(ValueError, match="phases: got \\['average'\\]"):
        Schedule([phase(AVERAGE, "a")], 1)


def test_a_run_without_one_has_the_state_that_it_always_had(toy):
    assert set(create_state(toy.make(), jax.random.key(0)).opt_state) == {"train"}


class Seen:
    """Records the parameters that an evaluation gets."""

    def __init__(self, evaluate):
        self.evaluate, self.params = evaluate, []

    def __call__(self, params, model_state):
        self.params.append(jax.device_get(params))
        return self.evaluate(params, model_state)


@pytest.mark.slow
def test_a_run_evaluates_and_saves_it(toy, unbroken, tmp_path):
    task = toy.make()
    seen = Seen(task.evaluate)
    task.evaluate = seen
    result = toy.run(tmp_path, task, ema=0.6, checkpoint_every=1, keep=20)
    snapshots = [training.load_snapshot(tmp_path, step) for step in range(1, 21)]
    last = snapshots[-1]
    same = lambda a, b: jax.tree.map(np.testing.assert_array_equal, a, b)  # noqa: E731
    same(last.state["params"], unbroken.result.params)  # the training is not changed by it
    assert last.state["opt_state"][AVERAGE]["steps"] == {"train": 20}
    same(training.variables_of(last)["params"], last.state["opt_state"][AVERAGE]["params"])
    same(result.variables, training.variables_of(last))
    same(seen.params[-1], result.params)
    expected = create_state(task, jax.random.key(0)).params
    for step, snapshot in enumerate(snapshots):
        kept = min(0.6, (1 + step) / (10 + step))
        expected = jax.tree.map(
            lambda old, new, kept=kept: kept * old + (1 - kept) * new,
            expected,
            snapshot.state["params"],
        )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), expected, result.params)


@pytest.mark.slow
def test_stopped_with_an_average_it_ends_with_the_same_bits(toy, tmp_path):
    def make(steps):
        task = toy.make()
        optimizer = optax.chain(optax.clip_by_global_norm(0.05), task.phases[0].optimizer)
        phases = (task.phases[0]._replace(optimizer=optimizer, steps=steps),)
        return dataclasses.replace(task, phases=phases)

    whole = toy.run(tmp_path / "whole", make(20), ema=0.9)
    toy.run(tmp_path / "broken", make(10), ema=0.9)
    result = toy.run(tmp_path / "broken", make(20), ema=0.9)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(result), strict=True):
        np.testing.assert_array_equal(a, b)
    last = [training.load_snapshot(tmp_path / name, 20).state for name in ("whole", "broken")]
    jax.tree.map(np.testing.assert_array_equal, *last)
