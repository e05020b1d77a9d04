"""Dead row: blanks one row of the detector."""

import jax
import jax.numpy as jnp

from jaxatr.data.augmentations.augmentation import Augmentation, Option


def blank_row(keys, images, probability):
    """Sets one row of each image to zero, with a given probability."""
    height = images.shape[1]

    def draw(key):
        of_row, of_chance = jax.random.split(key)
        row = jax.random.randint(of_row, (), 0, height)
        return jnp.where(jax.random.uniform(of_chance) < probability, row, height)

    dead = jnp.arange(height) == jax.vmap(draw)(keys)[:, None]
    return jnp.where(dead[:, :, None, None], 0, images)


PART = Augmentation(
    blank_row,
    {
        "dead_row": Option(
            0.0,
            "blank one row with this probability; 0: off",
            lambda value: 0 <= value <= 1,
            "0 to 1",
        )
    },
    place=45,  # after the gain, which is 40
    units="raw",
)
