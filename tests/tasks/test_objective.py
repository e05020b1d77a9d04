"""The loss of open-set recognition in a step of the training."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxatr import losses, openset, parallel
from jaxatr.tasks.open_set import OpenSet
from jaxatr.training import Phase
from jaxatr.training.state import create_state
from jaxatr.training.step import make_step


@pytest.mark.parametrize("class_weights", ["none", "sqrt"])
def test_a_batch_of_outliers_alone_is_learned(small_config, chips, tmp_path, class_weights):
    config = small_config.copy_and_resolve_references()
    config.model.backbone, config.augment.shift = "jaxatr_test_networks:Plain", 0
    config.loss.class_weights, config.loss.outlier_weight = class_weights, 0.3
    config.open_set.outliers = str(shutil.copytree(chips / "test" / "ring", tmp_path / "outliers"))
    task = OpenSet(config)
    task.phases = [Phase("plain", task.loss, optax.sgd(1.0), 1)]
    state = create_state(task, jax.random.key(0))
    params = jax.tree.map(np.asarray, state.params)
    batch = next(task.batches(task.phases[0]))
    batch |= {"label": np.full(len(batch["label"]), openset.UNKNOWN)}
    images = task.examples.normalize(batch["image"])

    def expected(params):
        out = task.module.apply({"params": params}, images)
        refused = losses.outlier_exposure(out.logits) + losses.refused_by_all(out.open_logits)
        return 0.3 * jnp.mean(refused)

    step = make_step(task.phases[0], jax.local_devices()[:1])
    given = parallel.replicate(state, jax.local_devices()[:1])
    after, sums = step(given, parallel.shard(batch, 1), np.zeros(1, np.int32))
    value, gradients = jax.value_and_grad(expected)(params)
    total, count = (float(part[0]) for part in sums["loss"])
    assert (total, count) == (pytest.approx(float(value), rel=1e-5), 1)
    moved = jax.tree.map(lambda new, old: old - np.asarray(new[0]), after.params, params)
    for ours, theirs in zip(jax.tree.leaves(moved), jax.tree.leaves(gradients), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-6)
