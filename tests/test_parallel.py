"""Replication, sharding and batches over the local devices."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import parallel


def double(variables, batch):
    return {"x": batch["x"] * variables["w"], "row": batch["x"].sum(-1)}


@pytest.mark.parametrize("sizes", [[4, 4, 3], [5], [2, 4, 1], []])
def test_batches_come_back_in_order_and_unpadded(sizes):
    rng = np.random.default_rng(0)
    batches = [{"x": rng.normal(size=(size, 3)).astype(np.float32)} for size in sizes]
    found = list(parallel.map_batches(double, {"w": np.float32(2.0)}, batches))
    assert len(found) == len(batches)
    for (batch, outputs), given in zip(found, batches, strict=True):
        assert batch is given
        assert isinstance(outputs["x"], np.ndarray)
        np.testing.assert_array_equal(outputs["x"], given["x"] * 2)
        np.testing.assert_allclose(outputs["row"], given["x"].sum(-1), rtol=1e-6)


def test_a_smaller_last_batch_is_not_compiled_for():
    shapes = []

    def fn(variables, batch):
        shapes.append(batch["x"].shape)
        return batch["x"]

    batches = [{"x": np.ones((size, 2))} for size in (6, 6, 1)]
    list(parallel.map_batches(fn, {}, batches, jax.local_devices()[:1]))
    assert shapes == [(6, 2)]


def test_a_tree_is_copied_to_every_device_and_back():
    tree = {"w": np.arange(3.0, dtype=np.float32), "n": 3, "key": jax.random.key(1)}
    replicated = parallel.replicate(tree)
    devices = jax.local_devices()
    assert replicated["w"].shape == (len(devices), 3)
    assert len(replicated["w"].addressable_shards) == len(devices)
    single = parallel.unreplicate(replicated)
    np.testing.assert_array_equal(single["w"], tree["w"])
    assert int(single["n"]) == 3
    assert jax.random.uniform(single["key"]) == jax.random.uniform(tree["key"])


def test_another_thread_computes_and_replicates_a_tree():
    tree = {"w": np.arange(3.0, dtype=np.float32), "key": jax.random.key(1)}
    devices = jax.local_devices()[:2]
    made = parallel.replicate_in_background(lambda: tree, devices).result()
    shapes = parallel.replicated_shapes(tree, devices)
    for leaf, shape in zip(jax.tree.leaves(made), jax.tree.leaves(shapes), strict=True):
        assert (leaf.shape, leaf.dtype) == (shape.shape, shape.dtype)
        assert leaf.sharding == shape.sharding
    np.testing.assert_array_equal(made["w"], [tree["w"]] * len(devices))


INLINE = """
import sys
import jax, numpy as np
from jaxatr import parallel

if sys.argv[1] == "inline":
    parallel.compute_inline()
devices = jax.local_devices()


def long(x):  # XLA runs short programs where they are called in any case
    return jax.lax.fori_loop(0, 1000, lambda _, x: jax.numpy.sin(x) + 1, x)


batch = parallel.arrived(np.zeros((len(devices), 512, 512), np.float32), devices)
print(parallel.computes_inline(), isinstance(batch, jax.Array), jax.pmap(long)(batch).is_ready())
"""


@pytest.mark.parametrize("mode", ["inline", "ahead"])
def test_a_program_is_over_when_its_call_returns_if_asked_to(mode):
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    done = subprocess.run(
        [sys.executable, "-c", INLINE, mode], capture_output=True, text=True, env=environment
    )
    inline = str(mode == "inline")
    assert done.stdout.split() == [inline, inline, inline], done.stderr


def test_an_error_of_the_other_thread_is_raised_where_its_tree_is_wanted():
    def fail():
        raise ValueError("no such tree")

    started = parallel.replicate_in_background(fail)
    with pytest.raises(ValueError, match="no such tree"):
        started.result()


def test_a_batch_is_dealt_out_in_order():
    batch = {"x": np.arange(12).reshape(6, 2), "label": np.arange(6)}
    parts = parallel.shard(batch, 3)
    np.testing.assert_array_equal(parts["label"], [[0, 1], [2, 3], [4, 5]])
    assert parts["x"].shape == (3, 2, 2)


def test_a_batch_that_does_not_divide_is_refused():
    with pytest.raises(ValueError, match="a batch of 6 is not divisible by 4 devices"):
        parallel.shard({"x": np.zeros(6)}, 4)


@pytest.fixture
def joined(monkeypatch):
    calls = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda *a: calls.append(a))
    for name in ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"):
        monkeypatch.delenv(name, raising=False)
    return calls


def test_one_process_joins_nobody(joined):
    parallel.initialize_from_environment()
    assert joined == []


def test_the_environment_names_the_others(joined, monkeypatch):
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "host:1234")
    monkeypatch.setenv("JAX_NUM_PROCESSES", "4")
    with pytest.raises(ValueError, match="wanted JAX_PROCESS_ID as well"):
        parallel.initialize_from_environment()
    for wrong in ("4", "x"):
        monkeypatch.setenv("JAX_PROCESS_ID", wrong)
        with pytest.raises(ValueError, match=f"got JAX_PROCESS_ID='{wrong}'"):
            parallel.initialize_from_environment()
    monkeypatch.setenv("JAX_PROCESS_ID", "3")
    parallel.initialize_from_environment()
    assert joined == [("host:1234", 4, 3)]


def test_every_axis_is_named(monkeypatch):
    def centred(variables, batch):
        return batch["x"] - jax.lax.pmean(jnp.mean(batch["x"]), parallel.AXIS)

    ((_, outputs),) = parallel.map_batches(centred, {}, [{"x": np.arange(8.0)}])
    np.testing.assert_allclose(outputs, np.arange(8.0) - 3.5)
