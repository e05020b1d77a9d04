"""Properties of every augmentation: off by default, and drawn per example and epoch."""

import functools
import importlib
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.data.augmentations import check, fields, in_order, keys_of, vary

# As an attribute, ``jaxatr.data.augment`` is the function, which hides its module.
augment = importlib.import_module("jaxatr.data.augment").augment

KEY = jax.random.key(3)
ON = {
    "background": {"background": 0.5, "background_window": 0.5},
    "subpixel": {"subpixel": 0.7},
    "rand_operations": {"rand_operations": 2, "rand_magnitude": 20.0},
    "speckle": {"speckle": 2},
    "gain": {"gain": 2.0},
    "offset": {"offset": 0.5},
    "dropped_pixels": {"dropped_pixels": 0.2},
    "erase": {"erase": 0.9},
}
EVERY = {name: value for options in ON.values() for name, value in options.items()}


def chips(count=6, height=9, width=11, channels=3):
    shape = (count, height, width, channels)
    return np.random.default_rng(0).gamma(2.0, size=shape).astype(np.float32)


@functools.cache
def program(channels, *options):
    units = {"mean": np.full(channels, 1.5), "std": np.full(channels, 0.5)}
    return jax.jit(lambda key, *of: augment(key, *of, **units, **dict(options)))


def varied(images, ids, epochs, options, key=KEY):
    run = program(images.shape[-1], *options.items())
    return np.asarray(run(key, images, jnp.asarray(ids, jnp.int32), jnp.asarray(epochs, jnp.int32)))


def test_each_has_its_place_and_is_listed_here():
    assert [one.switch for one in in_order()] == list(ON)
    names = {zlib.crc32(one.switch.encode()) for one in in_order()}
    assert len(names) == len(ON) and not names & {0, 1, 2}  # used for flips, shifts and rotations


def test_the_defaults_change_nothing():
    images = chips()
    defaults = {name.removeprefix("augment."): field.default for name, field in fields().items()}
    np.testing.assert_array_equal(varied(images, np.zeros(6), np.zeros(6), defaults), images)
    check(defaults)


@pytest.mark.parametrize("channels", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ON)
def test_keeps_shape_and_type_and_changes_something(name, channels):
    images = chips(channels=channels)
    out = varied(images, np.arange(6), np.zeros(6), ON[name])
    assert out.shape == images.shape and out.dtype == np.float32
    assert np.isfinite(out).all() and (out != images).any()


@pytest.mark.parametrize("name", ON)
def test_a_draw_belongs_to_the_example_and_the_epoch(name):
    if name == "background":  # has only two outcomes
        pytest.skip("two examples can have the same outcome")
    images = np.repeat(chips(1), 6, axis=0)
    first = varied(images, [4, 5, 6, 7, 4, 5], [0, 0, 0, 0, 0, 1], ON[name])
    again = varied(images, [7, 4, 9, 9, 9, 9], [0] * 6, ON[name])  # elsewhere, beside others
    np.testing.assert_array_equal(again[:2], first[[3, 4]])
    np.testing.assert_array_equal(first[0], first[4])
    assert (first[1] != first[5]).any() and (first[1] != first[2]).any()
    other = varied(images, [4, 5, 6, 7, 4, 5], [0] * 5 + [1], ON[name], jax.random.key(4))
    assert (other != first).any()


@pytest.mark.slow
def test_halves_of_a_batch_equal_the_whole():
    images, ids, epochs = chips(8, 8, 8), np.arange(8), np.arange(8) % 3
    options = {**EVERY, "rotate_degrees": 20.0, "shift": 1, "flip_horizontal": True}
    whole = varied(images, ids, epochs, options)
    halves = [
        varied(images[half], ids[half], epochs[half], options) for half in (slice(4), slice(4, 8))
    ]
    np.testing.assert_allclose(np.concatenate(halves), whole, atol=1e-6)


def test_others_do_not_disturb_the_flips():
    images, ids = chips(), np.arange(6)
    own = {"shift": 2, "flip_vertical": True}
    alone = varied(images, ids, np.zeros(6), own)
    loud = varied(images, ids, np.zeros(6), {**own, "offset": 3.0})
    np.testing.assert_allclose(np.ptp(loud - alone, axis=(1, 2, 3)), 0, atol=1e-6)
    assert len(np.unique((loud - alone)[:, 0, 0, 0])) == 6


@pytest.mark.parametrize("shape", [(1, 1), pytest.param((2, 5), marks=pytest.mark.slow)])
def test_tiny_and_constant_images(shape):
    images = np.ones((4, *shape, 1), np.float32)
    assert np.isfinite(varied(images, np.arange(4), np.zeros(4), EVERY)).all()


def test_keys_differ_by_name():
    keys = jax.jit(keys_of, static_argnums=3)
    a, b = (jax.random.key_data(keys(KEY, np.arange(3), np.zeros(3, int), n)) for n in "ab")
    assert (a != b).any(axis=1).all()


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("speckle", 1.5, "a whole number of looks"),
        ("speckle_of", "power", "'amplitude' or 'intensity'"),
        ("gain", 0.5, "1 or more"),
        ("offset", -1.0, "0 .off. or more"),
        ("dropped_pixels", 1.0, r"a share in \[0, 1\)"),
        ("background", 2.0, "a probability"),
        ("erase", -0.1, "a probability"),
        ("erase_area", 0.0, "a share"),
        ("rand_operations", -1, "whole number"),
        ("rand_magnitude", 31.0, "0 to 30"),
        ("subpixel", -0.5, "0 .off. or more"),
    ],
)
def test_values_out_of_range_are_named(name, value, wanted):
    with pytest.raises(ValueError, match=f"augment.{name}: got {value!r}, wanted .*{wanted}"):
        check({name: value})


def test_a_misspelt_option_is_named():
    with pytest.raises(ValueError, match="augment: got 'gian'.*did you mean 'gain'"):
        vary(
            KEY,
            jnp.asarray(chips(1)),
            jnp.zeros(1, int),
            jnp.zeros(1, int),
            {"gian": 2.0},
            first=True,
        )
