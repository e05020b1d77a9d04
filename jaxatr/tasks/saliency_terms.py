"""What a saliency map is trained by: the paper's loss and the variants of it."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxatr import losses
from jaxatr.tasks.explaining import blurred
from jaxatr.typing import Array, Config, Float


def saliency_terms(
    fields: Config,
    score: Callable[[Array], Array],
    images: Float[Array, "b h w c"],
    teacher: Float[Array, "b k"],
    saliency: Float[Array, "b h w"],
    shares: Float[Array, " b"],
) -> dict[str, jax.Array]:
    """Returns the terms of equation 8, ``[b]`` each: ``explanation``, and ``prior`` on the map.

    Args:
      fields: ``distillation`` of a configuration.
      score: from raw images to logits ``[b, k]``.
      images: in their raw units: the mask multiplies those.
      teacher: logits of the target network on the images.
      saliency: the map, in [0, 1].
      shares: of the pixels, where the objective is ``"curves"``.

    Returns:
      ``mean_intensity`` of the map besides, to be watched. The prior has its weights in it.
    """
    if fields.objective == "mask":
        kept = losses.explanation(teacher, score(images * saliency[..., None]))
    else:
        taken = losses.top_share(saliency, shares)[..., None]
        inserted = score(taken * images + (1 - taken) * blurred(images))
        erased = score((1 - taken) * images)
        kept = losses.faithfulness(
            inserted,
            erased,
            jnp.argmax(teacher, axis=-1),
            insertion_weight=fields.insertion_weight,
        )
    prior = fields.l1_weight * losses.saliency_l1(saliency, reduction=fields.l1)
    if fields.area_weight:
        prior += fields.area_weight * losses.saliency_area(saliency, fields.area)
    intensity = jnp.mean(saliency, axis=(1, 2))
    return {"explanation": kept, "prior": prior, "mean_intensity": intensity}
