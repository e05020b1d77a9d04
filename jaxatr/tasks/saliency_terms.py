"""What a saliency map is trained by: the paper's loss and the variants of it."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxatr import losses
from jaxatr.tasks.explaining import blurred
from jaxatr.tasks.limits import check_choices, check_limits
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


def check_saliency_fields(config: Config) -> None:
    """Refuses fields of which no loss can be made.

    Args:
      config: a run's.

    Raises:
      ValueError: a value will not do; the message has its name.
    """
    fields = config.distillation
    check_choices(
        config, distillation__objective=("mask", "curves"), distillation__l1=("sum", "mean")
    )
    check_limits(
        config,
        distillation__insertion_weight=(fields.insertion_weight >= 0, "0 or more"),
        distillation__l1_weight=(fields.l1_weight >= 0, "0 or more"),
        distillation__area=(0 <= fields.area <= 1, "a share in [0, 1]"),
        distillation__area_weight=(fields.area_weight >= 0, "0 (off) or more"),
    )
