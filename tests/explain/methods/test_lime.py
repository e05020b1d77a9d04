"""LIME: an independent loop on given segments, and properties of its superpixels."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.explain.methods.lime import lime

KEY = jax.random.key(0)
LABELS = np.array([[7, 7, -2, -2, 30]] * 2 + [[7, 5, 5, 30, 30]] * 4)  # neither sorted nor gapless


def labels(image):
    return LABELS


def loop_lime(image, target, probability, samples, width, penalty):
    """Superpixel → coefficient, by loops and the normal equations."""
    names = sorted(set(LABELS.ravel()))
    shown = np.array(jax.random.bernoulli(KEY, 0.5, (samples, 4)), int)
    shown[0] = 1
    scores, weights = [], []
    for row in shown:
        copy = np.float64(image)
        for name, bit in zip(names, row, strict=True):
            if not bit:
                copy[LABELS == name] = np.float64(image)[LABELS == name].mean(axis=0)
        scores.append(probability(copy, target))
        length = np.linalg.norm(row) * np.linalg.norm(np.ones(4))
        distance = 1 - (row.sum() / length if length else 0)
        weights.append(np.sqrt(np.exp(-(distance**2) / width**2)))
    design = np.concatenate([shown, np.ones((samples, 1))], axis=1)
    weighted = design * np.array(weights)[:, None]
    normal = weighted.T @ design + penalty * np.diag([1, 1, 1, 1, 0])
    return dict(zip(names, np.linalg.solve(normal, weighted.T @ scores), strict=False))


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize(("width", "penalty"), [(0.25, 1.0), (0.6, 0.01)])
def test_agrees_with_a_loop_on_given_segments(channels, width, penalty, linear):
    images = np.random.default_rng(1).normal(size=(2, 6, 5, channels)).astype(np.float32)
    network, targets = linear(6, 5, channels), np.array([2, 0])
    maps = lime(
        network.predict,
        images,
        key=KEY,
        targets=targets,
        segmentation=labels,
        samples=43,
        kernel_width=width,
        ridge=penalty,
        batch_size=10,
        raw=True,
    )
    for image, target, saliency in zip(images, targets, maps, strict=True):
        expected = loop_lime(image, target, network.probability, 43, width, penalty)
        of_pixels = np.vectorize(expected.get)(LABELS)
        assert np.abs(of_pixels).max() > 0.01
        np.testing.assert_allclose(saliency, of_pixels, rtol=1e-4, atol=1e-6)


def test_double_precision_draws_the_same_samples(linear):
    def explain():
        given = {"targets": np.array([1, 0]), "samples": 20, "segmentation": bands, "raw": True}
        return lime(network, images, key=jax.random.key(0), **given)

    def bands(image):
        return np.arange(64).reshape(8, 8) // 16

    network = linear(8, 8, 1).predict
    images = np.random.default_rng(0).normal(size=(2, 8, 8, 1)).astype(np.float32)
    maps = explain()
    with jax.enable_x64(True):
        np.testing.assert_allclose(explain(), maps, atol=1e-5)


def test_defaults_are_those_of_the_original():
    given = inspect.signature(lime).parameters
    values = {name: given[name].default for name in ("samples", "kernel_width", "ridge")}
    assert values == {"samples": 1000, "kernel_width": 0.25, "ridge": 1}


def test_only_the_superpixel_that_counts_has_a_coefficient():
    def predict(x):
        contrast = x[:, 0, 2, 0] - x[:, 1, 3, 0]  # both of superpixel -2; its mean has none
        return jnp.stack([3 * contrast, jnp.zeros(len(x))], axis=1)

    image = np.zeros((1, 6, 5, 1), np.float32)
    image[0, 0, 2] = 1
    saliency = lime(predict, image, key=KEY, segmentation=labels, ridge=1e-6, samples=200, raw=True)
    # Shown: 1 / (1 + e⁻³). Hidden: 1/2.
    expected = np.where(LABELS == -2, 1 / (1 + np.exp(-3)) - 0.5, 0)
    np.testing.assert_allclose(saliency[0], expected, atol=1e-5)


def test_superpixels_of_the_images_own_by_default():
    def predict(x):
        brightest = x[:, 20:28, 8:16].mean((1, 2, 3))
        return jnp.stack([10 * brightest, jnp.full(len(x), 5.0)], axis=1)

    image = np.random.default_rng(0).normal(0, 0.02, (1, 32, 32, 1)).astype(np.float32)
    image[0, 22:26, 10:14] += 4  # its superpixel's mean is darker than itself
    saliency = np.asarray(lime(predict, image, key=KEY, samples=100))
    assert saliency.shape == (1, 32, 32) and np.isfinite(saliency).all()
    assert 4 < len(np.unique(saliency)) < 200


def test_wrong_arguments_are_named(network, images):
    for options, message in (
        ({"samples": 0}, "samples: got 0, wanted at least 1"),
        ({"kernel_width": 0.0}, "kernel_width: got 0.0, wanted a positive number"),
        ({"ridge": -1.0}, "ridge: got -1.0, wanted a positive number"),
        ({"segmentation": lambda x: np.zeros((3, 3), int)}, r"segmentation: .* shape \(3, 3\)"),
        ({"segmentation": lambda x: np.zeros((12, 10))}, "segmentation: got float64"),
    ):
        with pytest.raises(ValueError, match=message):
            lime(network.predict, images, key=KEY, **options)
