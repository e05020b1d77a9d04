"""Rotation prediction (Hendrycks et al. 2019): the quarter turns of a second copy of each chip."""

import jax
import jax.numpy as jnp

from jaxatr import losses
from jaxatr.config import Field
from jaxatr.data.augmentations import keys_of
from jaxatr.tasks.open_set.terms.term import Copies, Option, Seen, Share, Term
from jaxatr.typing import Array, Batch, Config, Float, Int, PyTree

TURNS = 4
HEAD = "rotation_head"
"""Name of the parameters of the head that predicts quarter turns."""


def turned(key: Array, images: Float[Array, "b h h c"], batch: Batch) -> Copies:
    """Rotates each image by a random multiple of 90 degrees."""
    keys = keys_of(key, batch["id"], batch["epoch"], "rotation")
    turns = jax.vmap(lambda key: jax.random.randint(key, (), 0, TURNS))(keys)
    return Copies(quarter_turned(images, turns), turns)


def quarter_turned(
    images: Float[Array, "b h h c"], turns: Int[Array, " b"]
) -> Float[Array, "b h h c"]:
    """Rotates square images counter-clockwise by ``turns`` times 90 degrees."""
    forms = [jnp.rot90(images, turn, axes=(1, 2)) for turn in range(TURNS)]
    return jax.lax.select_n(
        jnp.broadcast_to(turns[:, None, None, None], images.shape).astype(jnp.int32), *forms
    )


def init(key: Array, width: int) -> PyTree:
    """Initialises the parameters of the head that predicts quarter turns."""
    kernel = jax.nn.initializers.lecun_normal()(key, (width, TURNS))
    return {HEAD: {"kernel": kernel, "bias": jnp.zeros(TURNS)}}


def value(seen: Seen) -> Share:
    """Adds up the cross-entropy of the turns."""
    assert seen.copies is not None
    features, turns = seen.copies
    head = seen.params[HEAD]
    values = losses.cross_entropy(features @ head["kernel"] + head["bias"], turns)
    return jnp.sum(values), jnp.float32(len(turns))


def check(config: Config, image_shape: tuple[int, int, int]) -> None:
    """Raises an error for chips that are not square."""
    if image_shape[0] != image_shape[1]:
        raise ValueError(
            f"loss.rotation_weight: got {config.loss.rotation_weight} and chips of "
            f"{image_shape[0]} × {image_shape[1]} pixels, wanted square ones: set data.size or "
            "data.center_crop"
        )


PART = Term(
    "rotation",
    {
        "loss.rotation_weight": Option(
            Field(
                0.0,
                "weight of rotation prediction (Hendrycks et al. 2019): an additional head "
                "predicts the quarter turns of a rotated copy of each chip",
            ),
            lambda weight: weight >= 0,
            "0 (off) or more",
        )
    },
    value,
    check=check,
    copies=turned,
    init=init,
)
