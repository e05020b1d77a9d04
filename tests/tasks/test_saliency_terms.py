"""The terms of equation 8 and of its variants."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import config as configuration
from jaxatr import losses
from jaxatr.explain import measures
from jaxatr.explain.methods.rise import rise_masks
from jaxatr.tasks.distillation.saliency_terms import saliency_terms
from jaxatr.tasks.keys import example_keys

DRAW = np.random.default_rng(0)
WEIGHTS = DRAW.normal(size=(64, 3)).astype(np.float32)
IMAGES = jnp.asarray(DRAW.random((2, 8, 8, 1), np.float32))
SALIENCY = jnp.asarray(DRAW.random((2, 8, 8), np.float32))
KEYS = jax.random.split(jax.random.key(0))


def score(images):
    return jnp.reshape(images, (len(images), -1)) @ WEIGHTS


def terms(**fields):
    config = configuration.of_task("jaxatr.tasks.distillation:Distillation").distillation
    config.update(fields)
    return saliency_terms(config, score, IMAGES, score(IMAGES), SALIENCY, KEYS)


def test_the_papers():
    found = terms(l1_weight=0.1)
    masked = score(IMAGES * SALIENCY[..., None])
    expected = losses.explanation(score(IMAGES), masked)
    np.testing.assert_allclose(found["explanation"], expected, rtol=1e-5)
    np.testing.assert_allclose(found["prior"], 0.1 * np.sum(SALIENCY, (1, 2)), rtol=1e-5)
    np.testing.assert_allclose(found["mean_intensity"], np.mean(SALIENCY, (1, 2)), rtol=1e-5)


def test_an_area_beside_the_norm_or_in_its_place():
    area = losses.saliency_area(SALIENCY, 0.3)
    alone = terms(l1_weight=0.0, area_weight=2.0, area=0.3)["prior"]
    np.testing.assert_allclose(alone, 2 * area, rtol=1e-6)
    both = terms(l1_weight=0.5, l1="mean", area_weight=2.0, area=0.3)["prior"]
    np.testing.assert_allclose(both, alone + 0.5 * np.mean(SALIENCY, (1, 2)), rtol=1e-5)


@pytest.mark.slow
def test_insertion_can_weigh_more_than_deletion():
    weights = 0.0, 1.0, 3.0, 1e6
    found = [terms(objective="curves", insertion_weight=w)["explanation"] for w in weights]
    erased, both, more, inserted = found
    np.testing.assert_allclose(both, (erased + inserted) / 2, rtol=1e-4)
    np.testing.assert_allclose(more, (erased + 3 * inserted) / 4, rtol=1e-4)
    assert ((0 < erased) & (erased <= 2) & (0 < inserted) & (inserted <= 2)).all()


def test_the_term_of_random_masks_is_added_to_the_curves():
    fields = {"objective": "curves", "insertion_weight": 3.0}
    plain = terms(**fields)["explanation"]
    found = terms(**fields, masks=5, masks_weight=0.25, masks_contrast=2.0)["explanation"]
    soft = np.asarray(measures.Blur()(np.asarray(IMAGES)))
    for i, key in enumerate(KEYS):
        image, masks = np.asarray(IMAGES)[i], np.asarray(rise_masks(key, 5, (8, 8)))
        best, scores = int(score(IMAGES)[i].argmax()), []
        for mask in masks[..., None]:
            shown = np.stack([mask * image + (1 - mask) * soft[i], (1 - mask) * image])
            kept, erased = np.asarray(jax.nn.softmax(score(shown)))[:, best]
            scores.append((3 * kept - erased) / 2)
        said = losses.influence(SALIENCY[i][None], masks[None], np.array([scores]), contrast=2.0)
        assert float(found[i] - plain[i]) == pytest.approx(0.25 * float(said[0]), rel=1e-3)


@pytest.mark.parametrize("objective", ["mask", "curves"])
def test_the_prior_is_apart_from_the_kept_pixels(objective):
    light, heavy = (terms(objective=objective, l1_weight=weight) for weight in (0.0, 1.0))
    np.testing.assert_array_equal(light["explanation"], heavy["explanation"])
    assert (heavy["prior"] > light["prior"]).all()


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
