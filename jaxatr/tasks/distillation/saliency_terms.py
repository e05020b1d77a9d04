"""The loss terms of saliency maps: those of the paper and variants."""

import jax
import jax.numpy as jnp

from jaxatr import losses
from jaxatr.explain.inputs import Function
from jaxatr.explain.measures import Blur
from jaxatr.explain.methods.rise import rise_masks
from jaxatr.typing import Array, Config, Float, Shaped


def saliency_terms(
    fields: Config,
    score: Function,
    images: Float[Array, "b h w c"],
    teacher: Float[Array, "b k"],
    saliency: Float[Array, "b h w"],
    keys: Shaped[Array, " b"],
) -> dict[str, jax.Array]:
    """Computes the terms of equation 8.

    Args:
      fields: the ``distillation`` group of a configuration.
      score: maps raw images to logits ``[b, k]``.
      images: images in raw units.
      teacher: logits of the target network for the images.
      saliency: the map, in [0, 1].
      keys: ``[b]``, random keys for the objective ``"curves"``.

    Returns:
      ``explanation`` ``[b]``; ``prior`` ``[b]``, the weighted priors on the map; and
      ``mean_intensity`` ``[b]`` of the map, for monitoring.
    """
    if fields.objective == "mask":
        kept = losses.explanation(teacher, score(images * saliency[..., None]))
    else:
        kept = _of_curves(fields, score, images, jnp.argmax(teacher, axis=-1), saliency, keys)
    prior = fields.l1_weight * losses.saliency_l1(saliency, reduction=fields.l1)
    if fields.area_weight:
        prior += fields.area_weight * losses.saliency_area(saliency, fields.area)
    intensity = jnp.mean(saliency, axis=(1, 2))
    return {"explanation": kept, "prior": prior, "mean_intensity": intensity}


def _of_curves(fields, score, images, classes, saliency, keys) -> Float[Array, " b"]:
    """Computes the loss of both curves at a random share of pixels, and that of random masks."""
    weight, soft = fields.insertion_weight, Blur().traced(images)
    taken = losses.top_share(saliency, jax.vmap(jax.random.uniform)(keys))
    shown = _inserted_and_erased(score, images, soft, taken)
    kept = losses.faithfulness(*shown, classes, insertion_weight=weight)
    if not fields.masks:
        return kept
    masks = jax.vmap(lambda key: rise_masks(key, fields.masks, saliency.shape[1:]))(keys)
    # Score all masks of all images in one batch, then reshape to [b, n].
    images, soft, classes = (jnp.repeat(x, fields.masks, axis=0) for x in (images, soft, classes))
    shown = _inserted_and_erased(score, images, soft, masks.reshape(-1, *saliency.shape[1:]))
    found = 2 - losses.faithfulness(*shown, classes, insertion_weight=weight)
    scores = found.reshape(-1, fields.masks)
    influence = losses.influence(saliency, masks, scores, contrast=fields.masks_contrast)
    return kept + fields.masks_weight * influence


def _inserted_and_erased(
    score: Function,
    images: Float[Array, "b h w c"],
    soft: Float[Array, "b h w c"],
    mask: Float[Array, "b h w"],
) -> tuple[jax.Array, jax.Array]:
    """Computes the logits of images with masked pixels inserted (into a blur), and erased."""
    mask = mask[..., None]
    return score(mask * images + (1 - mask) * soft), score((1 - mask) * images)
