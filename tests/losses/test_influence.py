"""Maps learnt from random masks, against plain loops and RISE."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxatr import losses
from jaxatr.explain.methods.rise import rise, rise_masks

WEIGHTS = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32)


def predict(images):
    return jnp.reshape(images, (len(images), -1)) @ WEIGHTS


def draw(seed, *shape):
    return np.random.default_rng(seed).random(shape).astype(np.float32)


def test_against_plain_loops():
    maps, masks, scores = draw(1, 2, 3, 4), draw(2, 2, 5, 3, 4), draw(3, 2, 5)
    found = jax.jit(partial(losses.influence, contrast=3.0))(maps, masks, scores)
    for b in range(2):
        total, middle = 0.0, np.mean(scores[b])
        for n in range(5):
            for y in range(3):
                for x in range(4):
                    wanted = 3 * (2 * masks[b, n, y, x] - 1) * (scores[b, n] - middle)
                    total += (wanted - (maps[b, y, x] - 0.5)) ** 2
        assert float(found[b]) == pytest.approx(total / (5 * 3 * 4), rel=1e-4)


def test_its_least_is_the_order_of_rise():
    image, key = draw(4, 1, 8, 8, 1), jax.random.key(0)
    masks = rise_masks(key, 4000, (8, 8))
    scores = jax.nn.softmax(predict(masks[..., None] * image))[:, 0]
    slope = jax.jit(jax.grad(lambda m: losses.influence(m, masks[None], scores[None]).sum()))
    flat = np.full((1, 8, 8), 0.5, np.float32)
    best = flat - np.asarray(slope(flat)) * 64 / 2  # the loss is quadratic: one step of Newton's
    np.testing.assert_allclose(slope(best), 0, atol=1e-6)
    explained = rise(predict, image, key=key, targets=np.array([0]), samples=4000, raw=True)
    # RISE's map includes the masks' unevenness, which these scores do not.
    level = np.asarray(masks).mean(0) * float(scores.mean()) / 0.5
    found, wanted = np.ravel(best), np.ravel(explained[0] - level)
    assert np.corrcoef(found, wanted)[0, 1] > 0.999


def test_gradients_agree_with_finite_differences_and_reach_no_score():
    maps, masks, scores = draw(5, 2, 3, 3), draw(6, 2, 4, 3, 3), draw(7, 2, 4)
    loss = jax.jit(lambda m, s: losses.influence(m, masks, s).sum())
    check_grads(lambda m: loss(m, scores), (maps,), 1, modes=["rev"])
    slope = jax.grad(lambda s: loss(maps, s))(scores)
    np.testing.assert_array_equal(slope, 0)


def test_scores_that_are_all_the_same_ask_for_nothing():
    masks = draw(8, 1, 3, 2, 2)
    assert float(losses.influence(np.full((1, 2, 2), 0.5), masks, np.ones((1, 3)))[0]) == 0


def test_one_mask_is_refused():
    with pytest.raises(ValueError, match="masks: got 1 of each image, wanted at least 2"):
        losses.influence(np.ones((1, 2, 2)), np.ones((1, 1, 2, 2)), np.ones((1, 1)))
