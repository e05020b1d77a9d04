"""Methods by name, and what is recorded of their maps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import explainers, metrics
from jaxatr.tasks.explaining import (
    RIVALS,
    Truth,
    blurred,
    judge,
    maps_of,
    method_name,
    recorded,
    rival,
    rivals,
    spread,
)
from jaxatr.tasks.keys import example_keys

WEIGHTS = np.random.default_rng(0).normal(size=(16 * 16, 3)).astype(np.float32)


def predict(images):
    return jnp.reshape(images, (len(images), -1)) @ WEIGHTS


@pytest.fixture
def images():
    return np.random.default_rng(1).random((3, 16, 16, 1)).astype(np.float32)


def test_names():
    assert rivals("all") == RIVALS and rivals("") == () == rivals(())
    assert rivals("gradcam,rise,gradcam") == ("grad_cam", "rise")
    assert rivals(["gradcam++"]) == ("grad_cam_plus_plus",)
    with pytest.raises(ValueError, match="method: got 'risen', .* did you mean 'rise'"):
        rivals("lime,risen")
    with pytest.raises(ValueError, match="method: got 'surrogate', wanted one of grad_cam"):
        method_name("surrogate", RIVALS)


def test_rise_hides_behind_the_mean(images):
    options = {"samples": 20, "cells": 4}
    found = rival("rise", predict, np.array([0.3]), seed=4, **options)(images)
    wanted = explainers.rise(predict, images, key=jax.random.key(4), baseline=0.3, **options)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("rise", [5]),  # which takes them one by one itself
        ("lime", [5]),
        ("occlusion", [5]),
        ("surrogate", [2, 2, 2]),
        ("grad_cam", [2, 2, 2]),
        ("smoothgrad", [2, 2, 1]),
        ("integrated_gradients", [2, 2, 1]),
    ],
)
def test_images_that_a_method_is_given_at_a_time(name, given):
    images, sizes = np.arange(5 * 4, dtype=np.float32).reshape(5, 2, 2, 1), []

    def explain(some):
        sizes.append(len(some))
        return 2 * some[..., 0]

    np.testing.assert_array_equal(maps_of(name, explain, images, 2), 2 * images[..., 0])
    assert sizes == given


def test_rows_are_spread_over_all_classes():
    labels = np.repeat(np.arange(6), [390, 300, 250, 250, 200, 96])  # as a part has them
    chosen = labels[spread(np.arange(len(labels)), 200)]
    assert len(chosen) == 200
    counts = np.bincount(chosen) / 200 - np.bincount(labels) / len(labels)
    assert np.abs(counts).max() < 0.01
    assert spread(np.array([3, 5, 8]), 9).tolist() == [3, 5, 8]
    assert spread(np.array([3, 5, 8]), 1).tolist() == [3]
    assert spread(np.zeros(0, int), 4).tolist() == []


def test_a_share_belongs_to_the_example_and_the_step():
    @jax.jit
    def draw(ids, key, step):
        return jax.vmap(jax.random.uniform)(example_keys(ids, key, step))

    key, ids = jax.random.key(2), np.arange(100, 164)
    shares = np.asarray(draw(ids, key, 7))
    assert shares.min() >= 0 and shares.max() < 1 and 0.4 < shares.mean() < 0.6
    np.testing.assert_array_equal(draw(ids[::-1], key, 7), shares[::-1])
    np.testing.assert_array_equal(draw(ids[8:16], key, 7), shares[8:16])
    later = np.asarray(draw(ids, key, 8))
    assert np.abs(np.corrcoef(shares, later)[0, 1]) < 0.3 and (shares != later).all()


@pytest.mark.parametrize("blur", [metrics.Blur(), metrics.RISE_BLUR, metrics.Blur(3, 1.0)])
def test_the_blur_of_a_training_is_that_of_the_measure(images, blur):
    images = images[:, :, :13] * 200
    np.testing.assert_allclose(blurred(images, blur), blur(images), atol=1e-3)


def test_what_maps_are_worth(images):
    maps = np.random.default_rng(2).random((3, 16, 16))
    maps[2] = 0
    masks, boxes = np.zeros((3, 16, 16), bool), np.tile(np.float32([0, 0, 8, 16]), (3, 1))
    masks[:, :8] = True
    values, convention = judge(predict, images, maps, truth=Truth(masks, boxes))
    inserted = metrics.insertion(predict, images, maps, pixels_per_step=16)
    np.testing.assert_allclose(values["insertion"], inserted.auc, atol=1e-6)
    np.testing.assert_allclose(values["fidelity"], values["insertion"] - values["deletion"])
    share = maps[:2, :8].sum((1, 2)) / maps[:2].sum((1, 2))
    np.testing.assert_allclose(values["share_inside"], [*share, 0])
    best = maps.reshape(3, -1).argmax(1) // 16 < 8
    np.testing.assert_array_equal(values["pointing_game"], best)
    assert [each["measure"] for each in convention] == ["insertion", "deletion"]
    assert "share_inside" not in judge(predict, images, maps)[0]


def test_a_step_is_one_row_of_the_chip():
    images = np.random.default_rng(3).random((1, 32, 8, 1)).astype(np.float32)
    _, convention = judge(predict, images, images[..., 0])
    assert [each["pixels_per_step"] for each in convention] == [8, 8]


def test_what_a_report_shows():
    insertion = np.array([0.5, 0.1, 0.9, 0.3, 0.3, 0.8, 0.7, 0.2])
    maps = np.linspace(0, 1, 8)[:, None, None] * np.ones((8, 2, 2))
    values = {"surrogate": {"insertion": insertion}, "lime": {"insertion": insertion / 2}}
    arrays = recorded(values, {"surrogate": maps, "lime": 1 - maps}, each=3)
    assert arrays["sheet_worst"].tolist() == [1, 7, 3]  # of equal ones, the first
    assert arrays["sheet_drawn"].tolist() == [0, 4, 6]
    rows = [1, 7, 3, 0, 4, 6]
    assert arrays["lime_map"].dtype == np.uint8
    np.testing.assert_allclose(arrays["lime_map"] / 255, 1 - maps[rows], atol=0.002)
    np.testing.assert_array_equal(arrays["lime_insertion"], insertion / 2)
