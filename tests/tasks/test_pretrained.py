"""Initialisation with pretrained weights."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import config, models
from jaxatr.models.pretrained import Weights
from jaxatr.tasks import pretrained
from jaxatr.tasks.pretrained import Pretrained

MODULE = models.OpenSetClassifier(
    models.ResNet(stage_sizes=(1,), block=models.resnet.BasicBlock, width=4, stem="3x3"), 3
)


@functools.cache
def variables():
    return jax.jit(MODULE.init)(jax.random.key(0), jnp.zeros((1, 8, 8, 1)))


def drawn():
    copy = jax.tree.map(jnp.array, dict(variables()))
    return copy.pop("params"), copy


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    monkeypatch.setattr(pretrained, "read_weights", read)


def read(path, backbone, *, in_channels, channels, folder):
    assert (path, backbone, in_channels, channels) == ("w", MODULE.backbone, 1, "sum")
    assert folder == "here"
    params, state = drawn()
    variables = {"params": params["backbone"], "batch_stats": state["batch_stats"]["backbone"]}
    return Weights(jax.tree.map(lambda leaf: leaf + 1, variables), {"path": path})


def fields(**values):
    model = config.common().model
    model.update(values)
    return model


NAMED = {"pretrained": "w", "pretrained_channels": "sum", "weights_dir": "here"}


def test_only_the_backbone_is_replaced_in_and_outside_of_jit():
    weights = Pretrained(fields(**NAMED), MODULE.backbone, 1)
    assert weights.record == {"pretrained": {"path": "w"}}
    params, state = drawn()
    for put_into in (weights.put_into, jax.jit(weights.put_into)):
        found, found_state = put_into(params, state)
        for head in ("closed_head", "open_head"):
            jax.tree.map(np.testing.assert_array_equal, found[head], params[head])
        new = {"params": found["backbone"], **found_state["batch_stats"]}
        old = {"params": params["backbone"], **state["batch_stats"]}
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b + 1), new, old)
    jax.tree.map(np.testing.assert_array_equal, (params, state), drawn())  # as they were


@pytest.mark.parametrize("channels, how", [(1, "same"), (3, "same"), (5, "sum")])
def test_published_networks_adapt_to_other_bands(monkeypatch, channels, how):
    asked = []

    def read(path, backbone, **given):
        asked.append((given["in_channels"], given["channels"]))
        return Weights({}, {})

    monkeypatch.setattr(pretrained, "read_weights", read)
    Pretrained(fields(pretrained="mobilenet_v2"), MODULE.backbone, channels)
    assert asked == [(channels, how)]


def test_nothing_named_changes_nothing():
    weights = Pretrained(fields(), MODULE.backbone, 1)
    assert weights.record == {}
    params, state = drawn()
    assert weights.put_into(params, state) == (params, state)


def test_a_network_without_such_a_part_is_refused():
    weights = Pretrained(fields(**NAMED), MODULE.backbone, 1)
    params, state = drawn()
    for name in ("other", "backbone"):
        wrong = {name: {"stem_conv": params["backbone"]["stem_conv"]}}
        with pytest.raises((KeyError, ValueError)):
            weights.put_into(wrong, state)
