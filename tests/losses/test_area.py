"""The area prior against plain loops: values, bounds and gradient."""

import jax
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxatr import losses

# Compiling single operations takes longer than compiling a small loss at once.
area = jax.jit(losses.saliency_area, static_argnames="share")


def draw(seed, *shape):
    return np.random.default_rng(seed).random(shape).astype(np.float32)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_against_plain_loops(share):
    maps = draw(0, 3, 5, 7)
    for one, found in zip(maps, area(maps, share), strict=True):
        rest = 35 - round(35 * share)
        wrong = [
            value**2 if place < rest else (1 - value) ** 2
            for place, value in enumerate(sorted(one.ravel().tolist()))
        ]
        assert float(found) == pytest.approx(sum(wrong) / 35, rel=1e-5)


def test_only_how_much_is_marked_counts():
    some = np.zeros((1, 6, 6), np.float32)
    some[0, 1:4, 2:5] = 1
    elsewhere = np.roll(some, 2, axis=1)
    assert area(some, 0.25) == area(elsewhere, 0.25) == 0
    assert area(1 - some, 0.25) == 0.5  # 18 of 36 pixels are wrong
    np.testing.assert_allclose(area(np.full((1, 4, 4), 0.5, np.float32), 0.25), 0.25)


def test_gradients_agree_with_finite_differences():
    check_grads(lambda maps: area(maps, 0.3).sum(), (draw(1, 2, 4, 4),), 1)
    slope = jax.grad(lambda maps: area(maps, 0.3).sum())(np.zeros((1, 4, 4), np.float32))
    assert np.isfinite(slope).all()


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_no_share_is_refused(share):
    with pytest.raises(ValueError, match=f"share: got {share}, wanted 0 to 1"):
        losses.saliency_area(np.zeros((1, 2, 2)), share)
