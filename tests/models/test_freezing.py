"""Freezing of parameters and batch statistics."""

import functools

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import config, models
from jaxatr.models.freezing import is_of

IMAGES = jnp.asarray(np.random.default_rng(0).normal(1.0, 2.0, (2, 16, 16, 1)), jnp.float32)


def network(monkeypatch, freeze, backbone="tiny"):
    tiny = functools.partial(
        models.ResNet, stage_sizes=(1, 1), block=models.resnet.BasicBlock, width=4, stem="3x3"
    )
    found = {"tiny": models.backbones.Backbone(tiny)}
    monkeypatch.setattr(models.build, "BACKBONES", found)
    args = {"axis_name": None} if backbone == "tiny" else {}
    fields = config.common().model
    fields.update({"freeze": freeze, "backbone": backbone, "args": args})
    return models.build_open_set(fields, 3)


def moved(module):
    """Returns the parts of the backbone whose statistics a training step changes."""
    variables = jax.jit(module.init)(jax.random.key(0), IMAGES)
    run = jax.jit(lambda v: module.apply(v, IMAGES, train=True, mutable=["batch_stats"]))
    _, new = run(variables)
    old = flax.traverse_util.flatten_dict(variables["batch_stats"]["backbone"])
    new = flax.traverse_util.flatten_dict(new["batch_stats"]["backbone"])
    return {path[0] for path in old if (np.asarray(old[path]) != new[path]).any()}


ALL = {"stem_norm", "stage1_block1", "stage2_block1"}


@pytest.mark.parametrize(
    ("freeze", "parts", "trained"),
    [
        ("", ALL, {"stem_conv", *ALL}),
        ("statistics", set(), {"stem_conv", *ALL}),
        (" statistics,", set(), {"stem_conv", *ALL}),
        (" ,", ALL, {"stem_conv", *ALL}),
        ("backbone", set(), set()),
        ("stem", {"stage1_block1", "stage2_block1"}, {"stage1_block1", "stage2_block1"}),
        ("stem, stage1", {"stage2_block1"}, {"stage2_block1"}),
    ],
)
def test_the_frozen_parts(monkeypatch, freeze, parts, trained):
    module = network(monkeypatch, freeze)
    assert moved(module) == parts
    params = jax.eval_shape(module.init, jax.random.key(0), IMAGES)["params"]
    models.check_freeze(freeze, params)
    trains = models.trainable(freeze) or (lambda path: True)
    paths = flax.traverse_util.flatten_dict(params)
    assert {path[1] for path in paths if path[0] == "backbone" and trains(path)} == trained
    assert {path[0] for path in paths if trains(path)} >= {"closed_head", "open_head"}


def test_a_frozen_backbone_runs_as_in_test_mode(monkeypatch):
    module = network(monkeypatch, "statistics")
    variables = jax.jit(module.init)(jax.random.key(0), IMAGES)

    def in_training(module):
        apply = functools.partial(module.apply, train=True, mutable=["batch_stats"])
        return jax.jit(apply)(variables, IMAGES)[0]

    trained, free = in_training(module), in_training(network(monkeypatch, ""))
    plain = jax.jit(module.apply)(variables, IMAGES)
    np.testing.assert_array_equal(trained.features, plain.features)
    assert (np.asarray(free.features) != trained.features).any()


def test_parts_of_a_backbone_of_ones_own(monkeypatch):
    """All statistics are frozen, because it is unknown to which part they belong."""
    module = network(monkeypatch, "Conv_0", "jaxatr_test_networks:Small")
    assert moved(module) == set()
    params = jax.eval_shape(module.init, jax.random.key(0), IMAGES)["params"]
    paths = flax.traverse_util.flatten_dict(params["backbone"])
    trains = models.trainable("Conv_0")
    assert {path[0] for path in paths if not trains(("backbone", *path))} == {"Conv_0"}


def test_a_part_that_is_not_there_is_named(monkeypatch):
    module = network(monkeypatch, "")
    params = jax.eval_shape(module.init, jax.random.key(0), IMAGES)["params"]
    with pytest.raises(ValueError, match="model.freeze: got 'stage3', wanted 'statistics'"):
        models.check_freeze("stem,stage3", params)
    with pytest.raises(ValueError, match="got 'stage1_block1', wanted whole stages, such as 'stag"):
        models.check_freeze("stage1_block1", params)
    with pytest.raises(ValueError, match="got 'statistics,stem', wanted 'statistics' alone"):
        models.check_freeze("statistics,stem", params)


def test_names_are_whole_words():
    assert is_of("stage1_block2", "stage1") and is_of("stage1", "stage1")
    assert not is_of("stage10_block1", "stage1") and not is_of("stem_conv", "stemming")
