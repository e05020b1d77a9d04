"""The differentiable insertion and deletion against the measures themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxatr import losses
from jaxatr.explain import measures

# Compiling single operations takes longer than compiling a small loss at once.
top_share = jax.jit(losses.top_share, static_argnames="softness")


@jax.jit
def slope_of(maps):
    return jax.grad(lambda m: losses.top_share(m, jnp.full(len(m), 0.3)).sum())(maps)


WEIGHTS = np.random.default_rng(0).normal(size=(36, 3)).astype(np.float32)


def predict(images):
    return jnp.reshape(images, (len(images), -1)) @ WEIGHTS


def draw(seed, *shape):
    return np.random.default_rng(seed).random(shape).astype(np.float32)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_a_hard_mask_holds_the_share(share):
    maps = draw(1, 2, 6, 6)
    taken = np.asarray(top_share(maps, np.full(2, share, np.float32), softness=1e-5))
    wanted = max(1, round(36 * share))  # the threshold's own pixel is half in
    np.testing.assert_allclose(taken.sum((1, 2)), wanted - 0.5, atol=1e-3)
    for one, mask in zip(maps, taken, strict=True):
        inside = mask.ravel() > 0.4
        assert one.ravel()[inside].min() > np.delete(one.ravel(), np.flatnonzero(inside)).max(
            initial=-1
        )


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_shares_in_16_bits_count_pixels_in_full(dtype):
    maps = draw(9, 1, 300, 300)  # more pixels than float16 reaches, and than bfloat16 tells apart
    taken = np.asarray(top_share(maps, jnp.array([0.75], dtype), softness=1e-5))
    assert (taken >= 0.5).sum() == 67_500


def test_its_mean_over_shares_agrees_with_the_measures():
    images, maps = draw(2, 4, 6, 6, 1), draw(3, 4, 6, 6)
    classes = np.asarray(predict(images)).argmax(-1)
    blurred = measures.Blur()(images)
    shares = (np.arange(36) + 0.5) / 36

    @jax.jit
    @jax.vmap
    def at(share):
        taken = losses.top_share(maps, jnp.full(4, share), softness=1e-4)[..., None]
        inserted = predict(taken * images + (1 - taken) * blurred)
        return losses.faithfulness(inserted, predict((1 - taken) * images), classes)

    found = at(np.float32(shares))
    step = {"pixels_per_step": 1}
    inserted = measures.insertion(predict, images, maps, **step).auc
    erased = measures.deletion(predict, images, maps, **step).auc
    np.testing.assert_allclose(np.mean(found, axis=0), 1 - inserted + erased, atol=0.02)


def test_gradients_agree_with_finite_differences():
    images, maps = draw(4, 2, 6, 6, 1), draw(5, 2, 6, 6)
    classes = np.array([0, 2])

    @jax.jit
    def loss(saliency, images):
        # The threshold is passed as a constant, as in the gradient.
        taken = jax.nn.sigmoid((saliency - 0.5) / 0.3)[..., None]
        return losses.faithfulness(
            predict(taken * images), predict((1 - taken) * images), classes
        ).sum()

    check_grads(loss, (maps, images), 1, modes=["rev"], rtol=2e-2)


def test_the_gradient_lifts_the_pixels_that_the_class_needs():
    images = np.zeros((1, 6, 6, 1), np.float32)
    images[0, 2, 3] = 1
    only = np.zeros((36, 2), np.float32)
    only[2 * 6 + 3, 0] = 9

    def loss(saliency):
        taken = losses.top_share(saliency, jnp.array([0.5]))[..., None]
        logits = [jnp.reshape(x, (1, -1)) @ only for x in (taken * images, (1 - taken) * images)]
        return losses.faithfulness(*logits, np.array([0]))[0]

    slope = np.asarray(jax.jit(jax.grad(loss))(0.5 + 0.01 * draw(6, 1, 6, 6)))[0]
    assert slope.argmin() == 2 * 6 + 3 and slope[2, 3] < 0


def test_the_slope_of_flat_maps_is_bounded():
    for value in (0.0, 0.3, 1.0):
        maps = np.full((1, 4, 4), value, np.float32)
        np.testing.assert_array_equal(top_share(maps, np.float32([0.3])), 0.5)
        np.testing.assert_array_equal(slope_of(maps), 0)
    flat = 0.3 + 1e-6 * draw(7, 1, 4, 4)
    assert 1 < np.abs(slope_of(flat)).max() <= 0.25 / (0.1 * 0.01) * 1.001
    # Above the lower bound each map's own deviation counts, even next to flat maps.
    wide = draw(8, 1, 4, 4)
    own = 0.25 / (0.1 * wide.std())
    both = slope_of(np.concatenate([wide, flat]))
    np.testing.assert_allclose(both[0].max(), own, rtol=1e-4)
    np.testing.assert_allclose(both[0], slope_of(wide)[0], rtol=1e-5)


def test_wild_logits():
    wild = np.float32([[1e4, -1e4]])
    assert jax.jit(losses.faithfulness)(wild, -wild, np.array([0])) == 0
    with pytest.raises(ValueError, match="softness: got 0"):
        losses.top_share(jnp.ones((1, 2, 2)), jnp.array([0.5]), softness=0.0)
