"""RISE: the masks by loops, the map by a NumPy loop over the same masks, a known patch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.explain.methods.rise import rise, rise_masks

KEY = jax.random.key(0)


def loop_enlarged(grid, side):
    """Bilinear, with pixels' centres aligned and the edge's values beyond the edge."""
    cells, places = len(grid), (np.arange(side) + 0.5) * len(grid) / side - 0.5
    low = np.clip(np.floor(places).astype(int), 0, cells - 1)
    high = np.clip(np.floor(places).astype(int) + 1, 0, cells - 1)
    share = places - np.floor(places)
    return (1 - share)[:, None] * grid[low] + share[:, None] * grid[high]


@pytest.mark.parametrize(
    ("shape", "cells"), [((64, 64), 7), ((20, 33), 7), ((5, 9), 7), ((8, 8), 1)]
)
def test_masks_are_grids_enlarged_and_cropped(shape, cells):
    masks = rise_masks(KEY, 6, shape, cells=cells, keep=0.3)
    cell = [int(np.ceil(side / cells)) for side in shape]
    for number, mask in enumerate(masks):
        of_mask = jax.random.fold_in(KEY, number)
        drawn = np.asarray(jax.random.uniform(of_mask, (cells**2 + 2,)))
        grid = np.float64(drawn[2:].reshape(cells, cells) < 0.3)
        row, column = int(drawn[0] * cell[0]), int(drawn[1] * cell[1])
        large = loop_enlarged(grid, (cells + 1) * cell[0])
        large = loop_enlarged(large.T, (cells + 1) * cell[1]).T
        expected = large[row : row + shape[0], column : column + shape[1]]
        np.testing.assert_allclose(mask, expected, atol=1e-6)


def test_masks_keep_their_share_of_every_pixel():
    masks = np.asarray(rise_masks(KEY, 4000, (16, 24), cells=4, keep=0.2))
    assert masks.min() >= 0 and masks.max() <= 1 + 1e-6
    np.testing.assert_allclose(masks.mean(axis=0), 0.2, atol=5 * 0.4 / 4000**0.5)


def test_a_mask_depends_on_the_key_and_its_number_alone():
    few, many = (rise_masks(KEY, n, (10, 14), cells=5) for n in (8, 37))
    np.testing.assert_array_equal(few, many[:8])
    other = rise_masks(jax.random.key(1), 8, (10, 14), cells=5)
    assert np.abs(np.asarray(few) - other).max() > 0.5


def test_double_precision_draws_the_same_masks():
    masks = rise_masks(KEY, 8, (10, 14), cells=5)
    with jax.enable_x64(True):
        found = rise_masks(KEY, 8, (10, 14), cells=5)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, masks, atol=1e-6)


@pytest.mark.parametrize("size", [(10, 14, 2), (32, 32, 1)])
def test_agrees_with_a_numpy_loop_over_the_same_masks(size, linear):
    images = np.random.default_rng(1).normal(size=(2, *size)).astype(np.float32)
    network, targets = linear(*size, scale=0.1), np.array([3, 1])
    options = {"samples": 37, "cells": 5, "keep": 0.4}
    maps = rise(
        network.predict, images, key=KEY, targets=targets, raw=True, batch_size=8, **options
    )
    masks = np.float64(rise_masks(KEY, 37, size[:2], cells=5, keep=0.4))
    for image, target, saliency in zip(images, targets, maps, strict=True):
        expected = np.zeros(size[:2])
        for mask in masks:
            expected += network.probability(mask[..., None] * image, target) * mask
        np.testing.assert_allclose(saliency, expected / 37 / 0.4, rtol=1e-4)


def test_a_baseline_shows_through_the_mask(linear):
    image = np.random.default_rng(2).normal(size=(1, 8, 9, 3)).astype(np.float32)
    network, colour = linear(8, 9, 3, scale=0.2), np.float32([0.5, -1, 2])
    maps = rise(
        network.predict, image, key=KEY, targets=np.array([0]), samples=9, baseline=colour, raw=True
    )
    expected = np.zeros((8, 9))
    for mask in np.float64(rise_masks(KEY, 9, (8, 9)))[..., None]:
        seen = mask * image[0] + (1 - mask) * colour
        expected += network.probability(seen, 0) * mask[..., 0] / 9 / 0.5
    np.testing.assert_allclose(maps[0], expected, rtol=1e-4)


def test_finds_the_patch_that_the_class_depends_on():
    def predict(x):
        bright = x[:, 16:24, 4:12, 0].mean((1, 2))
        return jnp.stack([8 * bright - 4, jnp.zeros(len(x))], axis=1)

    images = np.ones((1, 32, 32, 1), np.float32)
    saliency = np.asarray(rise(predict, images, key=KEY, samples=1500))[0]
    row, column = np.unravel_index(saliency.argmax(), saliency.shape)
    assert 16 <= row < 24 and 4 <= column < 12
    inside = saliency[16:24, 4:12].mean()
    assert inside > 0.7 and saliency[:, 20:].mean() < 0.35


def test_wrong_arguments_are_named(network, images):
    for options, message in (
        ({"samples": 0}, "samples: got 0, wanted at least 1"),
        ({"cells": 0}, "cells: got 0, wanted at least 1"),
        ({"batch_size": 0}, "batch_size: got 0, wanted at least 1"),
        ({"keep": 1.0}, "keep: got 1.0, wanted a probability between 0 and 1"),
    ):
        with pytest.raises(ValueError, match=message):
            rise(network.predict, images, key=KEY, **options)
    with pytest.raises(ValueError, match="columns: got 0, wanted at least 1"):
        rise_masks(KEY, 3, (4, 0))
