"""Passes over tracks: their length, and classes with unequal numbers of tracks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from jaxatr import config as configuration
from jaxatr import data, parallel
from jaxatr.tasks.track.task import TrackOpenSet


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return str(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def config(prepared):
    config = configuration.of_task("jaxatr.tasks.track:TrackOpenSet")
    config.data.name, config.data.validation = "simulated_tracks", 0.25
    config.data.data_dir = prepared
    config.data.options = ConfigDict({"tracks": 4, "frames": (1, 3), "size": 16})
    config.model.backbone = "jaxatr_test_networks:Plain"
    config.open_set.split = "random-5/3"
    config.track.frames, config.track.hidden, config.train.batch_size = 3, 8, 8
    return config


def loss(task, batch):
    """Computes the loss of a batch on one device."""
    params, state = jax.jit(task.init)(jax.random.key(0))
    one = jax.vmap(
        lambda rows: task.loss(params, state, rows, jax.random.key(1), jnp.int32(0)),
        axis_name=parallel.AXIS,
    )
    return jax.tree.map(lambda leaf: leaf[0], jax.jit(one)(parallel.shard(batch, 1)))


def test_an_epoch_is_a_pass_over_the_tracks(config):
    config.train.steps, config.train.epochs = 0, 4
    for hidden in (8, 0):
        config.track.hidden = hidden
        task = TrackOpenSet.of_config(config)(config)
        assert (task.steps_per_epoch, task.phases[0].steps) == (15 / 8, 8)  # tracks, 8 at a time


def test_rare_classes_weigh_more(config):
    config.track.frames = 1
    plain = TrackOpenSet(config)  # each chip is a track, and the vehicles have different numbers
    batch = next(plain.batches(plain.phases[0]))
    labels = plain.parts["train"].labels
    weights = data.class_weights(labels, 5, "sqrt")[batch["label"][:, 0]]
    assert np.ptp(weights) > 0.1
    config.loss.class_weights = "sqrt"
    out = loss(TrackOpenSet(config), batch)
    alone = [loss(plain, {name: rows[[row]] for name, rows in batch.items()}) for row in range(8)]
    for name in ("total", "count"):
        one = np.array([getattr(each, name) for each in alone])
        np.testing.assert_allclose(getattr(out, name), weights @ one, rtol=1e-5)
    right = [each.sums["closed_accuracy"] for each in alone]
    np.testing.assert_array_equal(out.sums["closed_accuracy"], np.sum(right, axis=0))


def test_a_balanced_pass_repeats_tracks_of_rare_classes(config):
    config.track.frames, config.train.balance, config.train.batch_size = 1, "sqrt", 1
    task = TrackOpenSet(config)
    labels = task.parts["train"].labels
    rows, copies = data.balanced_pass(labels, "sqrt")
    assert copies.max() and task.steps_per_epoch == len(rows)
    batches = task.batches(task.phases[0])
    drawn = [next(batches) for _ in rows]
    seen = np.bincount(np.concatenate([batch["label"][:, 0] for batch in drawn]))
    np.testing.assert_array_equal(seen, np.bincount(labels[rows]))
    assert {int(batch["epoch"][0]) for batch in drawn} == {0}
    task.examples.augment = lambda key, images, ids, views, boxes: views.astype(float)[0] + images
    ids = [batch["id"].item() for batch in drawn]
    first, again = next(
        (ids.index(one), row) for row, one in enumerate(ids) if ids.index(one) < row
    )
    totals = [float(loss(task, drawn[row]).total) for row in (first, again)]
    assert totals[0] != totals[1]
