"""The gradient of the predicted class's logit."""

import jax

from jaxatr.explain.method import Method


def input_gradient(predict, images):
    """Computes maps, [b, h, w]; predict maps images [b, h, w, c] to logits."""
    return jax.grad(lambda images: predict(images).max(axis=1).sum())(images).sum(axis=-1)


PART = Method("input_gradient", "input gradient", input_gradient)
