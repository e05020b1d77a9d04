"""Methods: looked up by name or path, bound to a network, run in batches."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.explain import METHODS, Method, find_method, find_methods, method_title
from jaxatr.explain.methods.rise import rise
from jaxatr.explain.scaling import scaled

WEIGHTS = np.random.default_rng(0).normal(size=(16 * 16, 3)).astype(np.float32)

OWN = '''
"""A method of a user's own: the gradient of the predicted class's logit."""

import jax

from jaxatr.explain import Method


def brightest(predict, images, *, power=1.0):
    return jax.grad(lambda images: predict(images).max(axis=1).sum())(images).sum(-1) ** power


GRADIENT = Method("gradient", "gradient", brightest)
OTHER = Method("gradient", "another gradient", brightest)
TAKEN = Method("rise", "RISE of mine", brightest)
FUNCTION = brightest
'''


def predict(images):
    return jnp.reshape(images, (len(images), -1)) @ WEIGHTS


@pytest.fixture
def images():
    return np.random.default_rng(1).random((3, 16, 16, 1)).astype(np.float32)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The name of a module outside the package."""
    (tmp_path / "my_methods.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield "my_methods"
    sys.modules.pop("my_methods", None)


def names(wanted):
    return [method.name for method in find_methods(wanted)]


def test_names():
    assert names("all") == list(METHODS) and names("") == [] == names(())
    assert names("gradcam,rise,gradcam") == ["grad_cam", "rise"]
    assert names(["gradcam++"]) == ["grad_cam_plus_plus"]
    with pytest.raises(ValueError, match="method: got 'risen', .* did you mean 'rise'"):
        find_methods("lime,risen")
    with pytest.raises(ValueError, match="method: got 'surrogate', wanted one of grad_cam"):
        find_method("surrogate")


def test_titles():
    titles = [method_title(name) for name in ("grad_cam_plus_plus", "surrogate", "of_a_user")]
    assert titles == ["Grad-CAM++", "surrogate", "of_a_user"]


def test_a_method_of_ones_own_is_found_by_its_path(own, images):
    method = find_method(f"{own}:GRADIENT")
    maps = method.in_batches(method.bind(predict, np.zeros(1)), images, 2)
    classes = np.argmax(predict(images), axis=1)
    np.testing.assert_allclose(maps, WEIGHTS.T[classes].reshape(3, 16, 16), rtol=1e-6)
    squared = method.bind(predict, np.zeros(1), power=2.0)(images)
    np.testing.assert_allclose(squared, maps**2, rtol=1e-5)
    assert names(f"rise,{own}:GRADIENT") == ["rise", "gradient"]


def test_a_method_of_ones_own_that_cannot_be_used(own):
    with pytest.raises(ValueError, match="FUNCTION is a function, wanted a Method"):
        find_method(f"{own}:FUNCTION")
    with pytest.raises(ValueError, match="TAKEN has the name of a built-in one, 'rise'"):
        find_method(f"{own}:TAKEN")
    with pytest.raises(ValueError, match="no 'GRADENT' in my_methods; did you mean 'GRADIENT'"):
        find_method(f"{own}:GRADENT")
    with pytest.raises(ValueError, match="methods: two of .* have the name 'gradient'"):
        find_methods(f"{own}:GRADIENT,{own}:OTHER")


def test_options_that_a_method_does_not_have():
    with pytest.raises(ValueError, match="got sample; rise has .* did you mean 'samples'"):
        METHODS["rise"].bind(predict, np.zeros(1), sample=3)


def test_rise_hides_behind_the_mean(images):
    options = {"samples": 20, "cells": 4}
    found = METHODS["rise"].bind(predict, np.array([0.3]), seed=4, **options)(images)
    wanted = rise(predict, images, key=jax.random.key(4), baseline=0.3, raw=True, **options)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


SURROGATE = Method("surrogate", "surrogate", lambda predict, images: images, in_unit_interval=True)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("rise", [5]),  # which loops over images itself
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

    method = METHODS.get(name, SURROGATE)
    np.testing.assert_array_equal(method.in_batches(explain, images, 2), 2 * images[..., 0])
    assert sizes == given


def test_maps_are_scaled_unless_they_are_in_the_unit_interval():
    maps = np.float32([[[0.2, 0.4], [0.3, 0.4]]])
    np.testing.assert_array_equal(SURROGATE.scaled(maps), maps)
    np.testing.assert_allclose(METHODS["rise"].scaled(maps), [[[0, 1], [0.5, 1]]], rtol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_map_that_is_not_finite_is_an_error_and_not_a_map_of_zeros(value):
    maps = np.ones((2, 2, 2), np.float32)
    maps[1, 0, 1] = value
    assert np.isnan(scaled(maps)[1]).any() and not np.any(scaled(maps)[0])
    for method in (METHODS["rise"], SURROGATE):
        with pytest.raises(ValueError, match=f"{method.name}: 1 maps are not finite, the first"):
            method.scaled(maps)
