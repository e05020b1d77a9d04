"""Grad-CAM and Grad-CAM++: hand-derived maps, plain loops, captum."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.explain.methods.grad_cam import grad_cam
from jaxatr.explain.methods.grad_cam_plus_plus import grad_cam_plus_plus


def itself(x):
    return x


def two_maps(maps):
    """Two classes: y₀ = Σ (2 A₀ - A₁) and y₁ = -y₀."""
    first = jnp.sum(2 * maps[..., 0] - maps[..., 1], axis=(1, 2))
    return jnp.stack([first, -first], axis=1)


def four_pixels():
    """8×8 of nothing, but for four pixels: A₀ is 3, 1, 0 and 1 there, A₁ is 1, 2, 5 and 0."""
    image = np.zeros((1, 8, 8, 2), np.float32)
    image[0, 0, :4] = [[3, 1], [1, 2], [0, 5], [1, 0]]
    return image


def test_grad_cam_hand_derived():
    # The gradients are 2 and -1 everywhere, and so are their means: 2·3 - 1, 2·1 - 2, -5, 2.
    saliency = grad_cam(itself, two_maps, four_pixels(), targets=np.array([0]), raw=True)
    expected = np.zeros((1, 8, 8))
    expected[0, 0, :4] = [5, 0, 0, 2]
    np.testing.assert_allclose(saliency, expected, atol=1e-6)
    # The other class: -2·3 + 1 and so on, of which 5 alone is positive.
    other = grad_cam(itself, two_maps, four_pixels(), targets=np.array([1]), raw=True)
    expected[0, 0, :4] = [0, 0, 5, 0]
    np.testing.assert_allclose(other, expected, atol=1e-6)
    scaled = grad_cam(itself, two_maps, four_pixels(), targets=np.array([1]))
    np.testing.assert_allclose(scaled, expected / 5, atol=1e-6)


def test_grad_cam_plus_plus_hand_derived():
    # Class 0: g is 2 for A₀, whose sum is 5, so that α = 4 / (2·4 + 8·5) = 1/12 at 64 places, and
    # w = 64 · 2 / 12. The gradient of A₁ is negative: it has no weight.
    saliency = grad_cam_plus_plus(itself, two_maps, four_pixels(), targets=np.array([0]), raw=True)
    expected = np.zeros((1, 8, 8))
    expected[0, 0, :4] = 64 / 6 * np.array([3, 1, 0, 1])
    np.testing.assert_allclose(saliency, expected, rtol=1e-6)


def loop_weights(method, maps, gradient):
    weights = np.zeros(maps.shape[-1])
    for f in range(maps.shape[-1]):
        for g in gradient[..., f].ravel():
            if method == "grad_cam":
                weights[f] += g / gradient[..., f].size
            elif g > 0:
                weights[f] += g * g**2 / (2 * g**2 + g**3 * maps[..., f].sum())
    return weights


@pytest.mark.parametrize("method", ["grad_cam", "grad_cam_plus_plus"])
def test_agrees_with_plain_loops(method):
    draw = np.random.default_rng(5)
    maps, kernel = np.abs(draw.normal(size=(2, 9, 8, 5))), draw.normal(size=(9, 8, 5, 3))

    def head(x):
        return jnp.einsum("bpqf,pqfk->bk", x, jnp.float32(kernel))

    targets = np.array([2, 0])
    function = {"grad_cam": grad_cam, "grad_cam_plus_plus": grad_cam_plus_plus}[method]
    saliency = function(itself, head, np.float32(maps), targets=targets, raw=True)
    for i, target in enumerate(targets):
        weights = loop_weights(method, maps[i], kernel[..., target])  # linear: the gradient
        expected = np.maximum(sum(w * maps[i, ..., f] for f, w in enumerate(weights)), 0)
        np.testing.assert_allclose(saliency[i], expected, rtol=1e-4, atol=1e-4)


def test_a_coarser_map_is_enlarged_about_the_pixels_centres():
    def halved(x):
        return x.reshape(1, 8, 2, 8, 2, 1).mean((2, 4))

    def head(maps):
        return jnp.sum(maps, axis=(1, 2))

    ramp = np.tile(np.arange(16, dtype=np.float32)[:, None, None], (1, 1, 16, 1))
    saliency = grad_cam(halved, head, ramp, raw=True)
    # The maps are 0.5, 2.5 ... 14.5, and linear between: the ramp, but for its ends.
    np.testing.assert_allclose(saliency[0, 1:-1, 3], np.arange(1, 15), rtol=1e-5)
    np.testing.assert_allclose(saliency[0, [0, -1], 3], [0.5, 14.5], rtol=1e-5)


def test_a_map_that_says_nothing_for_the_class_is_zero():
    def head(maps):
        return -jnp.sum(maps, axis=(1, 2))

    for method in (grad_cam, grad_cam_plus_plus):
        np.testing.assert_array_equal(method(itself, head, np.ones((1, 8, 8, 1), np.float32)), 0)


@pytest.mark.parametrize("method", [grad_cam, grad_cam_plus_plus])
@pytest.mark.parametrize("sign", [1, -1])
def test_one_class(method, sign):
    def head(maps):
        return sign * jnp.sum(maps[..., :1], axis=(1, 2))

    images = np.stack([four_pixels()[0], np.zeros((8, 8, 2)), np.full((8, 8, 2), 2)])
    saliency = np.asarray(method(itself, head, np.float32(images)))
    expected = np.zeros((3, 8, 8))  # a black or a constant image has no evidence for it
    if sign > 0:  # nor anywhere where all speaks against it
        expected[0, 0, :4] = np.array([3, 1, 0, 1]) / 3
    np.testing.assert_allclose(saliency, expected, atol=1e-6)


def test_a_coarse_map_is_refused(images, network):
    def coarse(x):
        return network.features(x)[:, ::2, ::2]

    for method in (grad_cam, grad_cam_plus_plus):
        with pytest.raises(ValueError, match=r"\(3, 6, 5, 6\).* at least 8; use an earlier stage"):
            method(coarse, network.head, images)
        with pytest.raises(
            ValueError, match=r"features: got shape \(3, 6\), wanted \(3, p, q, f\)"
        ):
            method(lambda x: network.features(x).mean((1, 2)), network.head, images)


def test_grad_cam_is_captums(peer, network, images):
    import torch

    targets = np.array([0, 3, 1])
    layer = peer.attr.LayerGradCam(peer.module, peer.module.features)
    theirs = layer.attribute(
        peer.tensor(images), target=torch.from_numpy(targets), relu_attributions=True
    )
    saliency = grad_cam(network.features, network.head, images, targets=targets, raw=True)
    assert saliency.max() > 0.01
    np.testing.assert_allclose(saliency, theirs[:, 0].detach(), atol=1e-4 * saliency.max())
