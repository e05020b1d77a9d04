"""The supervised contrastive loss of the features (Khosla et al. 2020), of the whole batch."""

import jax
import jax.numpy as jnp

from jaxatr import losses, parallel
from jaxatr.config import Field
from jaxatr.tasks.open_set.terms.term import Option, Seen, Share, Term
from jaxatr.typing import Array, Config


def value(seen: Seen) -> Share:
    """Computes the loss of all devices' features."""
    loss = losses.supervised_contrastive(
        _gathered(seen.out.features),
        _gathered(seen.targets[0].labels),
        temperature=seen.loss.contrastive_temperature,
    )
    return loss, jnp.float32(1)


def check(config: Config, image_shape: tuple[int, int, int]) -> None:
    """Raises an error for mixed images."""
    del image_shape
    if config.mix.mixup or config.mix.cutmix:
        raise ValueError(
            f"loss.contrastive_weight: got {config.loss.contrastive_weight} together with mix, "
            "wanted 0: mixed images have no single class to contrast"
        )


def _gathered(rows: Array) -> Array:
    return jax.lax.all_gather(rows, parallel.AXIS, tiled=True)


PART = Term(
    "contrastive",
    {
        "loss.contrastive_weight": Option(
            Field(
                0.0,
                "weight of the supervised contrastive loss (Khosla et al. 2020) of the features",
            ),
            lambda weight: weight >= 0,
            "0 (off) or more",
        ),
        "loss.contrastive_temperature": Option(
            Field(0.1, "temperature of the supervised contrastive loss"),
            lambda temperature: temperature > 0,
            "more than 0",
        ),
    },
    value,
    check=check,
)
