"""Mixup and CutMix: the share of a label equals that of its image."""

import jax
import numpy as np
import pytest
import scipy.stats

from jaxatr.data import mixing

KEYS = jax.random.split(jax.random.key(5), 1000)
ONES = np.ones((1000, 6, 9, 1), np.float32)
TWOS = 2 * ONES
mixup = jax.jit(mixing.mixup, static_argnums=3)
cutmix = jax.jit(mixing.cutmix, static_argnums=3)
mix = jax.jit(mixing.mix, static_argnames=("mixup_alpha", "cutmix_alpha", "probability"))


@pytest.mark.parametrize("alpha", [0.3, pytest.param(1.0, marks=pytest.mark.slow)])
def test_mixup_is_the_mean_weighed_by_a_share_of_beta(alpha):
    mixed, share = mixup(KEYS, ONES, TWOS, alpha)
    np.testing.assert_allclose(mixed, np.broadcast_to(2 - share[:, None, None, None], mixed.shape))
    assert scipy.stats.kstest(share, scipy.stats.beta(alpha, alpha).cdf).pvalue > 1e-3


def test_cutmix_takes_a_rectangle_over():
    mixed, share = cutmix(KEYS, ONES, TWOS, 1.0)
    taken = np.asarray(mixed)[..., 0] == 2
    np.testing.assert_allclose(share, 1 - taken.mean(axis=(1, 2)), rtol=1e-6)
    rows, columns = taken.any(axis=2).sum(axis=1), taken.any(axis=1).sum(axis=1)
    np.testing.assert_array_equal(taken.sum(axis=(1, 2)), rows * columns)
    assert taken.any(axis=0).all()  # every pixel, in some mixture
    assert 0.55 < share.mean() < 0.85  # more than a half due to clipping


def test_cutmix_by_the_papers_lines():
    """The rectangle's bounds equal those of the published code for the same draws."""
    height, width = 30, 20
    keys, images = KEYS[:50], np.zeros((50, height, width, 1), np.float32)
    mixed, _ = cutmix(keys, images, images + 1, 1.0)

    @jax.jit
    @jax.vmap
    def draws(key):
        size, place = jax.random.split(key)
        return jax.random.beta(size, 1.0, 1.0), jax.random.uniform(place, (2,))

    for share, centre, out in zip(
        *map(np.asarray, draws(keys)), np.asarray(mixed)[..., 0], strict=True
    ):
        rate = np.sqrt(1 - share)
        cut_h, cut_w = int(height * rate), int(width * rate)
        y, x = (int(c * n) for c, n in zip(centre, (height, width), strict=True))
        top, left = max(0, y - -(-cut_h // 2)), max(0, x - -(-cut_w // 2))
        expected = np.zeros((height, width))
        expected[top : y + cut_h // 2, left : x + cut_w // 2] = 1
        np.testing.assert_array_equal(out, expected)


def test_both_are_drawn_and_some_images_stay():
    mixed, share = mix(KEYS, ONES, TWOS, mixup_alpha=1.0, cutmix_alpha=1.0, probability=0.8)
    mixed = np.asarray(mixed)[..., 0]
    flat = np.ptp(mixed, axis=(1, 2)) < 1e-6
    kept = (mixed == 1).all(axis=(1, 2)) & (share == 1)
    assert abs(kept.mean() - 0.2) < 0.06  # sometimes CutMix replaces no pixel
    assert abs((flat & ~kept).mean() - 0.4) < 0.06
    np.testing.assert_allclose(2 - mixed.mean(axis=(1, 2)), share, atol=1e-5)


def test_one_alone():
    mixed, _ = mix(KEYS, ONES, TWOS, cutmix_alpha=1.0)
    assert set(np.unique(mixed)) == {1.0, 2.0}
    mixed, share = mix(KEYS, ONES, TWOS, mixup_alpha=1.0, probability=0.0)
    assert (np.asarray(mixed) == 1).all() and (np.asarray(share) == 1).all()
