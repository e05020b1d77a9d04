import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.data.augmentations import random_erasing

erase = jax.jit(random_erasing.erase, static_argnums=(2, 3))
KEYS = jax.random.split(jax.random.key(1), 1000)


def test_rectangles_have_the_papers_areas_and_ratios():
    size = 60
    out = np.asarray(erase(KEYS, jnp.full((1000, size, size, 1), 99.0), 1.0, 0.4))[..., 0]
    inside = out != 99
    rows, columns = inside.any(axis=2).sum(axis=1), inside.any(axis=1).sum(axis=1)
    np.testing.assert_array_equal(inside.sum(axis=(1, 2)), rows * columns)  # full rectangles
    shares, ratios = rows * columns / size**2, rows / columns
    assert 0.01 < shares.min() and shares.max() < 0.42
    assert abs(shares.mean() - (0.02 + 0.4) / 2) < 0.02
    assert 0.2 < ratios.min() and ratios.max() < 5
    assert abs(np.median(ratios) - (0.3 + 1 / 0.3) / 2) < 0.15
    values = out[inside]
    assert abs(values.mean()) < 0.01 and abs(values.std() - 1) < 0.01


def test_so_many_images_are_changed():
    out = np.asarray(erase(KEYS, jnp.full((1000, 8, 8, 3), 99.0), 0.25))
    assert abs((out != 99).any(axis=(1, 2, 3)).mean() - 0.25) < 0.04


def test_every_place_is_reached():
    out = np.asarray(erase(KEYS, jnp.full((1000, 8, 12, 1), 99.0), 1.0))[..., 0]
    assert (out != 99).any(axis=0).all()
    assert not (out != 99).all(axis=0).any()
