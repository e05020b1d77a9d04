"""Occlusion: hand-derived drops, plain loops over the windows."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.explain.methods.occlusion import occlusion


def test_hand_derived():
    def predict(x):  # the probability of class 0 is 1/2 without the pixel's brightness, 0.8 with it
        return jnp.stack([jnp.log(4.0) * x[:, 0, 1, 0], jnp.zeros(len(x))], axis=1)

    image = np.ones((1, 2, 4, 1), np.float32)
    # Windows of 2×2 at columns 0, 1 and 2: the first two hide the pixel, each with a drop of 0.3.
    saliency = occlusion(predict, image, window=2, stride=1, raw=True)
    np.testing.assert_allclose(saliency[0], [[0.3, 0.3, 0.15, 0]] * 2, atol=1e-6)
    scaled = occlusion(predict, image, window=2, stride=1)
    np.testing.assert_allclose(scaled[0], [[1, 1, 0.5, 0]] * 2, atol=1e-6)


def loop_occlusion(image, target, probability, window, stride, baseline):
    whole, shape = probability(image, target), image.shape[:2]
    drops = [[[] for _ in range(shape[1])] for _ in range(shape[0])]
    firsts = [
        sorted({min(start, side - size) for start in range(0, side, step)})
        for side, size, step in zip(shape, window, stride, strict=True)
    ]
    for row in firsts[0]:
        for column in firsts[1]:
            copy = np.float64(image)
            copy[row : row + window[0], column : column + window[1]] = baseline
            drop = whole - probability(copy, target)
            for i in range(row, row + window[0]):
                for j in range(column, column + window[1]):
                    drops[i][j].append(drop)
    return np.array([[np.mean(pixel) for pixel in line] for line in drops])


@pytest.mark.parametrize(
    ("window", "stride"), [((3, 3), (3, 3)), ((4, 2), (3, 1)), ((9, 7), (1, 1)), ((1, 1), (1, 1))]
)
def test_agrees_with_plain_loops(window, stride, linear):
    images = np.random.default_rng(1).normal(size=(2, 9, 7, 2)).astype(np.float32)
    network, targets, gray = linear(9, 7, 2, scale=0.3), np.array([1, 3]), np.float32([0.2, -0.4])
    maps = occlusion(
        network.predict,
        images,
        targets=targets,
        window=window,
        stride=stride,
        baseline=gray,
        batch_size=4,
        raw=True,
    )
    for image, target, saliency in zip(images, targets, maps, strict=True):
        expected = loop_occlusion(image, target, network.probability, window, stride, gray)
        np.testing.assert_allclose(saliency, expected, rtol=1e-4, atol=1e-6)


def test_wrong_arguments_are_named(network, images):
    for options, message in (
        ({"window": 13}, "window: got 13 rows, wanted 1 to 12, the image's"),
        ({"window": (4, 11)}, "window: got 11 columns, wanted 1 to 10"),
        ({"window": 3, "stride": 4}, "stride: got 4 rows, wanted 1 to 3, the window's"),
        ({"stride": 0}, "stride: got 0 rows"),
        ({"batch_size": 0}, "batch_size: got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            occlusion(network.predict, images, **options)
