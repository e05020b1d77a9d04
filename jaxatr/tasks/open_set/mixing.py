"""Mixup and CutMix of a training batch, with the labels of the mixed images."""

import jax.numpy as jnp

from jaxatr import data, parallel
from jaxatr.data.augmentations import keys_of
from jaxatr.tasks.open_set.terms import Labels
from jaxatr.typing import Array, Batch, Config, Float


def mixed(
    config: Config, key: Array, images: Float[Array, "b h w c"], batch: Batch
) -> tuple[Float[Array, "b h w c"], list[Labels]]:
    """Returns the images, mixed if configured, and their labels.

    A mixed image has two labels, weighted by their fractions, so that its loss is a mixture of
    two losses. If each of the two classes is the other one's hardest negative, the terms of
    their binary classifiers are the binary cross-entropy with these fractions as targets. Any
    other classifier is trained to reject the image.
    """
    labels, mix = jnp.asarray(batch["label"]), config.get("mix")
    if not mix or not (mix.mixup or mix.cutmix):
        return images, [Labels(labels, jnp.ones(len(labels)))]
    keys = keys_of(key, batch["id"], batch["epoch"], "mix")
    images, share = data.mix(
        keys,
        images,
        parallel.following(images),
        mixup_alpha=mix.mixup,
        cutmix_alpha=mix.cutmix,
        probability=mix.probability,
    )
    return images, [Labels(labels, share), Labels(parallel.following(labels), 1 - share)]
