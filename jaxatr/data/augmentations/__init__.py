"""Augmentations that are off by default, a file each, found by their place (:mod:`jaxatr.parts`).

The fields of each join the configuration, its limits are checked, and :func:`jaxatr.data.augment`
applies it where its first field is set.
"""

import zlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.config import Fields
from jaxatr.data.augmentations.augmentation import Augmentation
from jaxatr.parts import Parts
from jaxatr.resolve import nearest
from jaxatr.typing import Array, ArrayLike, Float, Int, Key, Shaped

#: The augmentations by the names of their files.
AUGMENTATIONS = Parts(__name__, Augmentation)


def in_order() -> list[Augmentation]:
    """Returns all augmentations, in the order in which they are applied."""
    return sorted(AUGMENTATIONS.values(), key=lambda one: one.place)


def fields() -> Fields:
    """Returns the configuration fields of all augmentations."""
    return {name: field for one in in_order() for name, field in one.fields.items()}


def check(given: Mapping[str, Any]) -> None:
    """Checks the values of the augmentations' options.

    Args:
      given: the group ``augment`` of a configuration.

    Raises:
      ValueError: a value is not allowed; the message names the option.
    """
    for one in in_order():
        for name, option in one.options.items():
            if name in given and not option.fits(given[name]):
                raise ValueError(f"augment.{name}: got {given[name]!r}, wanted {option.wanted}")


def vary(
    key: Key,
    images: Float[Array, "b h w c"],
    ids: Int[Array, " b"],
    epochs: Int[Array, " b"],
    given: Mapping[str, Any],
    *,
    first: bool,
    mean: Float[ArrayLike, " c"] | float = 0.0,
    std: Float[ArrayLike, " c"] | float = 1.0,
) -> Float[Array, "b h w c"]:
    """Applies the augmentations that are switched on.

    Args:
      key: the run's random key.
      images: normalised chips.
      ids: example ids.
      epochs: the number of completed passes over the data before each example.
      given: option names to values; missing options have their defaults.
      first: apply the augmentations that precede flips, shifts and rotations; otherwise the rest.
      mean: per-channel mean that was subtracted from the images.
      std: per-channel standard deviation that the images were divided by.

    Raises:
      ValueError: an option does not exist.
    """
    every = in_order()
    known = [name for one in every for name in one.options]
    for name in given:
        if name not in known:
            raise ValueError(f"augment: got {name!r}, which is not a field{nearest(name, known)}")
    centre, scale = np.asarray(mean, np.float32), np.asarray(std, np.float32)
    for one in every:
        values = [given.get(name, option.default) for name, option in one.options.items()]
        if values[0] and (one.place < 0) == first:
            keys = keys_of(key, ids, epochs, one.switch)
            if one.units == "raw":
                images = (one.apply(keys, images * scale + centre, *values) - centre) / scale
            else:
                images = one.apply(keys, images, *values)
    return images


def keys_of(
    key: Key, ids: Int[ArrayLike, " b"], epochs: Int[ArrayLike, " b"], name: str
) -> Shaped[Array, " b"]:
    """Returns one key per example, ``[b]``, derived from the example, the epoch and a name."""
    number = np.uint32(zlib.crc32(name.encode()))  # unlike hash(), equal in all processes

    def own(example: Array, epoch: Array) -> Array:
        seen = jax.random.fold_in(jax.random.fold_in(key, example), epoch)
        return jax.random.fold_in(seen, number)

    return jax.vmap(own)(jnp.asarray(ids), jnp.asarray(epochs))
