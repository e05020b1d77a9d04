"""Perturbed boxes, in training and as a group of the evaluation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import data, runs
from jaxatr.tasks.boxes import surrounded_chip
from jaxatr.tasks.embedding.evaluation import evaluate
from jaxatr.tasks.examples import Examples
from jaxatr.tasks.open_set import OpenSet
from jaxatr.tasks.parts import BOX_OFF


@pytest.fixture
def config(small_config):
    """A configuration of 16-pixel chips from 24-pixel images."""
    config = small_config.copy_and_resolve_references()
    config.data.center_crop, config.data.box_margin = 16, 0.25
    config.augment.shift, config.augment.box_shift, config.augment.box_scale = 0, 0.1, 0.1
    config.data.box_error = 0.1
    return config


def augmented(examples, images, **options):
    ids = jnp.arange(len(images))
    return examples.augment(jax.random.key(0), jnp.asarray(images), ids, 0 * ids, **options)


@pytest.mark.slow
def test_training_reads_the_surroundings_of_the_chips(config):
    examples = Examples(config)
    batch = next(examples.train_batches())
    # Half of 16, a tenth more, and a tenth of the box of 12.8: 2.08 pixels of surroundings.
    assert batch["image"].shape == (16, 22, 22, 1)
    images = batch["image"].astype(np.float32)
    middle = augmented(examples, images, only=["shift"])
    np.testing.assert_array_equal(middle, images[:, 3:-3, 3:-3])
    found = augmented(examples, images)
    assert found.shape == middle.shape == (16, 16, 16, 1)
    # Ramps say how far off a chip is: at most a tenth of the box.
    ramp = np.broadcast_to(np.arange(22, dtype=np.float32)[:, None, None], (400, 22, 22, 1))
    off = np.array(augmented(examples, ramp)).mean(axis=(1, 2, 3)) - 10.5
    assert 1.1 < np.abs(off).max() <= 1.28 + 1e-4
    for part in ("train", "validation", "test"):
        assert next(iter(examples.eval_batches(part)))["image"].shape == (16, 16, 16, 1)


def test_it_reads_as_much_as_exists(config):
    config.data.center_crop, config.data.box_error = 22, 0.0
    assert next(Examples(config).train_batches())["image"].shape == (16, 24, 24, 1)
    config.data.center_crop, config.data.size = 22, 16  # resized: nothing is around it
    assert next(Examples(config).train_batches())["image"].shape == (16, 16, 16, 1)


@pytest.mark.parametrize("degrees", [0, 30, 60, 90, 180])
def test_the_surroundings_suffice_for_every_angle_up_to_the_largest(degrees):
    columns = {"height": np.full(3, 400), "width": np.full(3, 400)}
    train = data.Split("train", [], columns, ("a",), np.dtype(np.uint8))
    fields = {"box_shift": 0.1, "box_scale": 0.2, "rotate_degrees": degrees}
    angles = np.deg2rad(np.linspace(-degrees, degrees, 1 + 2 * 180))
    corners = 50 * 1.2 * (np.abs(np.cos(angles)) + np.abs(np.sin(angles))).max()
    found = surrounded_chip(train, np.arange(3), data.Chip(center_crop=100), fields)
    assert found.center_crop == 100 + 2 * np.ceil(10 + corners - 50)


def test_without_other_boxes_training_reads_the_chips(config):
    config.augment.box_shift = config.augment.box_scale = 0.0
    assert next(Examples(config).train_batches())["image"].shape == (16, 16, 16, 1)


@pytest.mark.slow  # to train and measure a run of its own
def test_the_evaluation_has_a_group_of_boxes_that_are_off(config, tmp_path):
    config.train.epochs, config.open_set.score = 6, "cbc"
    runs.train_run(config, tmp_path / "run", progress=False)
    groups = runs.evaluate_run(tmp_path / "run")["groups"]
    assert list(groups) == ["all", "boxes off by 10 %"]
    exact, off = (groups[name]["scores"]["cbc"] for name in groups)
    assert groups["all"]["num_known"] == groups["boxes off by 10 %"]["num_known"] == 30
    assert exact["fitted_threshold"] == off["fitted_threshold"] and exact["auroc"] != off["auroc"]
    with np.load(tmp_path / "run" / "scores.npz") as arrays:
        np.testing.assert_array_equal(arrays["box_off_id"], arrays["test_id"])
        assert not np.allclose(arrays["box_off_logits"], arrays["test_logits"])


class Pixels:
    """An embedding without a network: the chip itself."""

    def __init__(self, config):
        self.config, self.examples = config, Examples(config)
        self.parts, self.record = self.examples.parts, self.examples.record

    def embed(self, variables, part, *, progress=False):
        chips = self.parts[part].chips(np.arange(len(self.parts[part].indices)))
        return chips.reshape(len(chips), -1).astype(np.float32) / 255


@pytest.mark.slow
def test_the_evaluation_of_an_embedding_has_that_group_too(config):
    groups = evaluate(Pixels(config), {}, None)[0]["groups"]
    assert list(groups) == ["all", "boxes off by 10 %"]
    exact, off = (groups[name]["scores"]["nearest"] for name in groups)
    assert exact["fitted_threshold"] == off["fitted_threshold"] and exact["auroc"] != off["auroc"]


def test_the_chips_of_that_group_are_the_same_for_every_run(config):
    found = []
    for seed in (0, 1):
        config.seed = seed
        part = Examples(config).parts[BOX_OFF]
        found.append(part.chips(np.arange(3)))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    "group, field, value, message",
    [
        ("augment", "box_shift", -0.1, "augment.box_shift: got -0.1, wanted 0"),
        ("augment", "box_scale", 1.0, "augment.box_scale: got 1.0, wanted a share"),
        ("data", "box_margin", -1.0, "data.box_margin: got -1.0, wanted 0 or a share"),
        ("data", "box_error", 1.0, "data.box_error: got 1.0, wanted a share"),
        ("data", "box_error", 0.5, "data.box_error: boxes that are off by 0.5 need chips cut"),
    ],
)
def test_invalid_values_are_refused(config, group, field, value, message):
    config[group][field] = value
    with pytest.raises(ValueError, match=message):
        OpenSet(config)
