"""The train state as arrays, and splitting of parameters."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxatr.training.state import (
    create_state,
    flatten,
    from_arrays,
    merge,
    split,
    to_arrays,
    trace_state,
)


def test_a_state_survives_as_arrays(toy):
    state = create_state(toy.make(), jax.random.key(3))
    arrays = to_arrays(state)
    assert "opt_state/train/0/trace/conv/kernel" in flatten(arrays)
    again = from_arrays(create_state(toy.make(), jax.random.key(4)), arrays)
    assert jax.tree.structure(again) == jax.tree.structure(state)
    assert jax.tree.all(jax.tree.map(np.array_equal, to_arrays(again), arrays))
    assert jax.random.uniform(again.key) == jax.random.uniform(state.key)


def test_keys_of_an_optimiser_survive_too(toy):
    state = create_state(toy.make(), jax.random.key(3))
    state = state.replace(opt_state={"train": {"noise": jax.random.key(7), "count": jnp.int32(2)}})
    template = state.replace(
        opt_state={"train": {"noise": jax.random.key(0), "count": jnp.int32(0)}}
    )
    again = from_arrays(template, to_arrays(state)).opt_state["train"]
    assert jax.random.uniform(again["noise"]) == jax.random.uniform(jax.random.key(7))
    assert again["count"] == 2


def test_the_shapes_of_a_state_are_known_before_it_is_compiled(toy, compiler_events):
    key = jax.random.key(3)
    compiler_events.clear()
    shapes, compute = trace_state(toy.make(), key, ema=0.9)
    assert "backend_compile_duration" not in compiler_events
    state = compute()
    assert jax.tree.structure(shapes) == jax.tree.structure(state)
    pairs = zip(jax.tree.leaves(shapes), jax.tree.leaves(state), strict=True)
    assert all((shape.shape, shape.dtype) == (leaf.shape, leaf.dtype) for shape, leaf in pairs)
    again = from_arrays(shapes, to_arrays(state))
    assert jax.tree.all(jax.tree.map(np.array_equal, to_arrays(again), to_arrays(state)))
    assert jax.random.uniform(again.key) == jax.random.uniform(state.key)


def test_arrays_are_copies(toy):
    state = create_state(toy.make(), jax.random.key(3))
    arrays = to_arrays(state)
    bias = arrays["params"]["head"]["bias"]
    assert bias.flags.owndata
    bias += 1
    assert float(jnp.sum(state.params["head"]["bias"])) == 0.0


@pytest.mark.parametrize(
    "change, match",
    [
        (
            lambda head: head | {"bias": np.zeros(5, np.float32)},
            r"got float32\[5\], wanted .*\[4\]",
        ),
        (lambda head: head | {"bias": np.zeros(4)}, r"got float64\[4\], wanted float32\[4\]"),
        (lambda head: {"kernel": head["kernel"]}, r"params/head/bias: got nothing"),
        (lambda head: {}, r"and 1 more"),
    ],
)
def test_arrays_of_another_state_are_refused(toy, change, match):
    state = create_state(toy.make(), jax.random.key(3))
    arrays = to_arrays(state)
    arrays["params"]["head"] = change(arrays["params"]["head"])
    with pytest.raises(ValueError, match=match):
        from_arrays(state, arrays)


def test_the_parts_make_the_whole():
    params = {"a": {"kernel": 1, "bias": 2}, "b": {"kernel": 3}}
    trained, frozen = split(params, lambda path: path[-1] == "kernel")
    assert trained == {"a": {"kernel": 1}, "b": {"kernel": 3}}
    assert frozen == {"a": {"bias": 2}}
    assert merge(trained, frozen) == params
    assert split(params, None) == (params, {})


def test_empty_dictionaries_are_part_of_the_parameters(toy):
    """A target without variables has one, and one from ONNX for the collections it lacks."""
    state = create_state(toy.make(), jax.random.key(3))
    target = {"params": {"kernel": jnp.ones(2)}, "batch_stats": {}}
    params = state.params | {"target": target, "function": {}}
    for trainable in (None, lambda path: path[0] == "head"):
        assert merge(*split(params, trainable)).keys() == params.keys()
        assert merge(*split(params, trainable))["target"].keys() == target.keys()
    state = state.replace(params=params)
    arrays = to_arrays(state)
    del arrays["params"]["target"]["batch_stats"], arrays["params"]["function"]
    again = from_arrays(state, arrays)
    assert jax.tree.structure(again) == jax.tree.structure(state)


def test_a_phase_must_train_something(toy):
    phase = toy.make().phases[0]._replace(trainable=lambda path: False, optimizer=optax.sgd(1.0))
    with pytest.raises(ValueError, match="phase 'train': its trainable.. selects no parameter"):
        create_state(dataclasses.replace(toy.make(), phases=(phase,)), jax.random.key(0))


def test_parameters_without_a_phase_are_refused(toy):
    task = toy.make()
    task.phases = []
    with pytest.raises(ValueError, match="phases: got none"):
        create_state(task, jax.random.key(0))
