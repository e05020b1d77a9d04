"""The inputs of scores: maps of stages, and the chip itself."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import config as configuration
from jaxatr import models, openset
from jaxatr.tasks import OpenSet
from jaxatr.tasks.open_set import needs


class Plain(nn.Module):
    """A user-defined backbone without stages."""

    @nn.compact
    def __call__(self, images, train=False):
        return nn.Dense(4)(jnp.mean(images, axis=(1, 2)))


class Staged(nn.Module):
    """A user-defined backbone with one map."""

    maps = ("map_stage1",)

    @nn.compact
    def __call__(self, images, train=False):
        x = nn.Conv(5, (3, 3))(images)
        self.sow("intermediates", "map_stage1", x)
        return jnp.mean(x, axis=(1, 2))


def by_loops(maps, most):
    """Computes means over the cells of a grid."""
    b, h, w, f = maps.shape
    rows, columns = min(h, most), min(w, most)
    means = np.zeros((b, rows, columns, f))
    for i in range(rows):
        for j in range(columns):
            top, bottom = i * h // rows, int(np.ceil((i + 1) * h / rows))
            left, right = j * w // columns, int(np.ceil((j + 1) * w / columns))
            means[:, i, j] = maps[:, top:bottom, left:right].mean(axis=(1, 2))
    return means


@pytest.mark.parametrize("size", [(16, 16), (8, 4), (11, 9), (1, 30)])
def test_maps_are_averaged_as_by_loops(size):
    maps = np.float32(np.random.default_rng(0).normal(size=(2, *size, 3)))
    np.testing.assert_allclose(needs.pooled(jnp.asarray(maps)), by_loops(maps, 8), atol=1e-6)
    np.testing.assert_allclose(needs.pooled(jnp.asarray(maps), 3), by_loops(maps, 3), atol=1e-6)


@pytest.mark.slow
def test_maps_are_those_of_the_network():
    backbone = models.ResNet18(width=4, stem="3x3", stage_sizes=(1, 1, 1, 1))
    module = models.OpenSetClassifier(backbone, 3)
    images = jax.random.normal(jax.random.key(1), (2, 32, 32, 1))
    variables = jax.jit(module.init)(jax.random.key(0), images)
    assert set(variables) == {"params", "batch_stats"}  # maps are no variables
    found = jax.jit(lambda v, x: needs.outputs_with(needs.MAPS, module, v, x))(variables, images)
    plain = jax.jit(lambda v, x: needs.outputs_with((), module, v, x))(variables, images)
    assert plain.keys() == {"logits", "open_logits", "features"}
    for name, output in plain.items():  # maps change no output
        np.testing.assert_array_equal(found.pop(name), output)
    shapes = {name: one.shape for name, one in found.items()}
    assert shapes == {
        "map_stem": (2, 8, 8, 4),
        "map_stage1": (2, 8, 8, 4),
        "map_stage2": (2, 8, 8, 8),
        "map_stage3": (2, 8, 8, 16),
        "map_stage4": (2, 4, 4, 32),
    }
    assert {one.dtype for one in found.values()} == {jnp.dtype(jnp.float16)}
    own = {name: values["backbone"] for name, values in variables.items()}
    attended = jax.jit(partial(module.backbone.apply, method="attended"))(own, images)
    for name, stage in zip(needs.MAPS[2:], attended.stages, strict=True):
        np.testing.assert_allclose(found[name], by_loops(stage, 8), rtol=2e-3, atol=1e-3)
    np.testing.assert_allclose(
        np.float32(found["map_stage4"]).mean(axis=(1, 2)), attended.features, rtol=2e-3, atol=1e-3
    )
    one = needs.NEEDS["map_stage2"].compute
    assert one is not None
    alone = jax.jit(lambda v, x: one(module, v, x))(variables, images)
    np.testing.assert_array_equal(alone, found["map_stage2"])


def test_a_value_beyond_float16_is_its_largest():
    module = models.OpenSetClassifier(Staged(), 2)
    images = jnp.full((1, 8, 8, 1), 1e9)
    variables = module.init(jax.random.key(0), images)
    found = needs.outputs_with(["map_stage1"], module, variables, images)["map_stage1"]
    assert np.isfinite(found).all() and np.abs(found).max() == np.finfo(np.float16).max


def test_a_backbone_gives_the_maps_that_it_lists():
    config = configuration.of_task()
    config.loss.open = "none"
    everything = needs.given_by(models.OpenSetClassifier(models.ResNet18(width=4), 2), config)
    assert everything == {"features", "image", *needs.COMPUTED}
    staged = needs.given_by(models.OpenSetClassifier(Staged(), 2), config)
    assert staged & set(needs.MAPS) == {"map_stage1"}
    plain = needs.given_by(models.OpenSetClassifier(Plain(), 2), config)
    assert plain == {"features", "image", "odin", "gradient_norms"}
    config.loss.open = "cbc"
    assert needs.given_by(models.OpenSetClassifier(Plain(), 2), config) - plain == {"open_logits"}
    score = openset.Score("far", "Far", lambda _, out: out.labels, needs=("map_stage2",))
    assert needs.refusal(score, everything) == ""
    made = openset.Score("made", "Made", score.score, members=(score,))
    for one in (score, made):
        assert needs.refusal(one, staged) == (
            "needs the map of stage 2 (map_stage2), which is only available for single images and "
            "backbones with stages, which list the maps that they sow as `maps`"
        )


def test_a_run_gives_chips_and_maps(small_config):
    task = OpenSet(small_config)
    params, state = jax.jit(task.init)(jax.random.key(0))
    wanted = {"image", "map_stage2", "features"}
    assert wanted <= task.given
    found = task.outputs({"params": params, **state}, "test", wanted)
    assert set(found.more) == wanted
    assert found.more["image"].shape == (len(found.labels), *task.examples.image_shape)
    rows = []
    for batch in task.examples.eval_batches("test"):
        rows.append(np.asarray(batch["image"])[batch["mask"]])
    np.testing.assert_array_equal(found.more["image"], np.concatenate(rows))
    plain = task.outputs({"params": params, **state}, "test")
    np.testing.assert_allclose(plain.logits, found.logits, atol=1e-5)


def test_detectors_know_every_need():
    assert openset.detector.ARRAYS | {"features"} == {*needs.NEEDS}
