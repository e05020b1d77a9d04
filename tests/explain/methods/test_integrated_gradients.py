"""Integrated gradients: hand-derived, complete, and captum's."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.explain.methods.integrated_gradients import integrated_gradients


def squares(x):
    """One class: the sum of a pixel's squares, the second channel's negative."""
    return jnp.sum(x**2 * jnp.array([1.0, -1.0]), axis=(1, 2))


def test_hand_derived():
    # Of x² from x' to x: x² - x'². The right sum of 2t over m steps is 1 + 1/m.
    image = np.float32([[[[3, 1], [0, 2]]]])

    def explain(channels, **options):
        return integrated_gradients(
            lambda x: squares(x).sum(axis=1, keepdims=True),
            image,
            channels=channels,
            raw=True,
            **options,
        )[0, 0]

    np.testing.assert_allclose(explain("sum"), [8, -4], rtol=1e-6)
    np.testing.assert_allclose(explain("abs_of_sum"), [8, 4], rtol=1e-6)
    np.testing.assert_allclose(explain("sum_of_abs"), [10, 4], rtol=1e-6)
    np.testing.assert_allclose(explain("sum", baseline=1.0), [8, -4], rtol=1e-6)
    np.testing.assert_allclose(explain("sum_of_abs", baseline=1.0), [8, 4], rtol=1e-6)
    right = explain("sum", method="riemann", steps=4)
    np.testing.assert_allclose(right, [8 * 1.25, -4 * 1.25], rtol=1e-6)


@pytest.mark.parametrize("baseline", [0.0, 0.7])
def test_complete(baseline, network, images):
    targets = np.array([0, 3, 1])
    maps = integrated_gradients(
        network.predict,
        images,
        targets=targets,
        baseline=baseline,
        steps=300,
        channels="sum",
        raw=True,
    )
    ends = (network.predict(x) for x in (images, np.full_like(images, baseline)))
    at_image, at_baseline = (np.asarray(logits)[np.arange(3), targets] for logits in ends)
    assert np.abs(at_image - at_baseline).min() > 0.01
    np.testing.assert_allclose(maps.sum((1, 2)), at_image - at_baseline, atol=2e-3)


@pytest.mark.parametrize(
    ("method", "theirs"), [("gausslegendre", "gausslegendre"), ("riemann", "riemann_right")]
)
def test_is_captums(peer, network, images, method, theirs):
    import torch

    targets = np.array([0, 3, 1])
    attributions = (
        peer.attr.IntegratedGradients(peer.module)
        .attribute(
            peer.tensor(images),
            baselines=0.25,
            target=torch.from_numpy(targets),
            n_steps=20,
            method=theirs,
        )
        .detach()
        .numpy()
    )
    for channels, expected in (
        ("sum", attributions.sum(1)),
        ("sum_of_abs", np.abs(attributions).sum(1)),
    ):
        maps = integrated_gradients(
            network.predict,
            images,
            targets=targets,
            baseline=0.25,
            steps=20,
            method=method,
            channels=channels,
            raw=True,
        )
        np.testing.assert_allclose(maps, expected, atol=1e-4 * np.abs(expected).max())


def test_wrong_arguments_are_named(network, images, unchecked):
    for options, message in (
        ({"steps": 0}, "steps: got 0, wanted at least 1"),
        ({"method": "simpson"}, "method: got 'simpson', wanted 'gausslegendre' or 'riemann'"),
        ({"channels": "max"}, "channels: got 'max', wanted one of"),
    ):
        with pytest.raises(ValueError, match=message):
            integrated_gradients(network.predict, images, **options)
