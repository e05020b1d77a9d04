"""The facts of an image, by hand and against a noise that is known."""

import functools

import jax
import numpy as np
import pytest

from jaxatr import data
from jaxatr.data.image_facts import facts_by

DIAGONAL = np.hypot(4, 4)


def facts(image):
    return dict(zip(data.FACTS, data.image_facts(image), strict=True))


def test_facts_of_an_edge_are_those_by_hand():
    edge = np.repeat([[0, 0, 2, 2]], 4, axis=0)[..., None].astype(np.uint8)
    found = facts(edge)
    assert found["brightness"] == found["contrast"] == 1
    assert found["sharpness"] == pytest.approx(1)  # 4 pixels of 16 differ from the next, by 2
    assert found["noise"] == 0  # all rows are equal
    assert found["offset"] == pytest.approx(0.5 / DIAGONAL)  # column 1, of a centre at 1.5
    assert found["extent"] == pytest.approx(np.sqrt(1.25) / DIAGONAL)  # rows 0 to 3


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_light_changes_the_brightness_only_and_gain_the_units(dtype):
    image = np.random.default_rng(0).integers(0, 100, (12, 9, 3)).astype(dtype)
    before, lighter, doubled = facts(image), facts(image + dtype(20)), facts(image * dtype(2))
    assert lighter == pytest.approx(before | {"brightness": before["brightness"] + 20}, rel=1e-4)
    in_units = {name: 2 * before[name] for name in ("brightness", "contrast", "noise")}
    assert doubled == pytest.approx(before | in_units, rel=1e-4)


def test_the_noise_is_estimated_on_a_ramp():
    rng = np.random.default_rng(1)
    ramp = np.add.outer(np.arange(200.0), 2 * np.arange(200.0))
    image = (ramp + rng.normal(0, 3, ramp.shape))[..., None].astype(np.float32)
    assert facts(image)["noise"] == pytest.approx(3, rel=0.05)


def test_a_moved_or_larger_target_changes_offset_and_extent():
    def chip(top, side):
        image = np.zeros((40, 40, 1), np.uint8)
        image[top : top + side, 12 : 12 + side] = 200
        return facts(image)

    centred, moved, larger = chip(12, 16), chip(18, 16), chip(10, 22)
    assert moved["offset"] > centred["offset"] + 0.05
    assert moved["extent"] == pytest.approx(centred["extent"], rel=1e-3)
    assert larger["extent"] > 1.3 * centred["extent"]


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 5, 3)])
def test_the_smallest_images_have_finite_facts(shape):
    assert np.isfinite(data.image_facts(np.arange(np.prod(shape)).reshape(shape))).all()


def test_the_facts_of_several_images_are_those_of_each():
    images = np.random.default_rng(2).integers(0, 255, (2, 3, 9, 14, 3), dtype=np.uint8)
    images[1, 2] = 7  # flat
    found = data.image_facts(images)
    assert found.shape == (2, 3, len(data.FACTS))
    for index in np.ndindex(2, 3):
        np.testing.assert_allclose(found[index], data.image_facts(images[index]), rtol=1e-6)
    assert found[1, 2].tolist() == [7, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("mark", [-3.4e38, 1e20])
def test_a_mark_of_missing_pixels_overflows_nothing(mark):
    image = np.full((1, 8, 8, 3), mark * 1e-4, np.float32)
    image[0, 2, 3] = mark
    in_units = facts(image[0].astype(np.float64) / abs(mark))
    for name in ("brightness", "contrast", "noise"):
        in_units[name] *= abs(mark)
    assert facts(image[0]) == pytest.approx(in_units, rel=1e-5)
    of_program = jax.jit(functools.partial(facts_by, jax.numpy))(image)
    np.testing.assert_allclose(of_program[0], data.image_facts(image[0]), rtol=1e-5)
