"""Augmentations that are off by default: every module of this folder gives one.

A module that ends with ``AUGMENTATION`` is found by itself: its fields join the configuration, its
limits are checked, and :func:`jaxatr.data.augment` applies it where its first field is set.
"""

import importlib
import pkgutil
import zlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.config import Fields
from jaxatr.data.augmentations.augmentation import Augmentation
from jaxatr.resolve import nearest
from jaxatr.typing import Array, ArrayLike, Float, Int, Key, Shaped


def _augmentations() -> tuple[Augmentation, ...]:
    modules = (
        importlib.import_module(f"{__name__}.{found.name}")
        for found in pkgutil.iter_modules(__path__)
    )
    found = [module.AUGMENTATION for module in modules if hasattr(module, "AUGMENTATION")]
    return tuple(sorted(found, key=lambda one: one.place))


#: In the order in which they are applied.
AUGMENTATIONS: tuple[Augmentation, ...] = _augmentations()

#: Their configuration fields.
FIELDS: Fields = {name: field for one in AUGMENTATIONS for name, field in one.fields.items()}


def check(given: Mapping[str, Any]) -> None:
    """Refuses values that an augmentation cannot have.

    Args:
      given: the group ``augment`` of a configuration.

    Raises:
      ValueError: a value will not do; the message has its name.
    """
    for one in AUGMENTATIONS:
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
    """Returns images varied by the augmentations that are switched on.

    Args:
      key: the run's.
      images: normalised chips.
      ids: of the examples.
      epochs: how often the stream had gone round before each example.
      given: names of options to values; one that is not given has its default.
      first: apply those that come before flips, shifts and turns; else the others.
      mean: that was taken out of the images, by channel.
      std: that they were divided by.

    Raises:
      ValueError: there is no such option.
    """
    known = [name.removeprefix("augment.") for name in FIELDS]
    for name in given:
        if name not in known:
            raise ValueError(f"augment: got {name!r}, which is no field{nearest(name, known)}")
    centre, scale = np.asarray(mean, np.float32), np.asarray(std, np.float32)
    for one in AUGMENTATIONS:
        values = [given.get(name, option.default) for name, option in one.options.items()]
        if values[0] and (one.place < 0) == first:
            keys = keys_of(key, ids, epochs, one.name)
            if one.units == "raw":
                images = (one.apply(keys, images * scale + centre, *values) - centre) / scale
            else:
                images = one.apply(keys, images, *values)
    return images


def keys_of(
    key: Key, ids: Int[ArrayLike, " b"], epochs: Int[ArrayLike, " b"], name: str
) -> Shaped[Array, " b"]:
    """Returns a key for each example, ``[b]``: it belongs to the example, the epoch and a name."""
    number = np.uint32(zlib.crc32(name.encode()))  # of no other name, and the same in every process

    def own(example: Array, epoch: Array) -> Array:
        seen = jax.random.fold_in(jax.random.fold_in(key, example), epoch)
        return jax.random.fold_in(seen, number)

    return jax.vmap(own)(jnp.asarray(ids), jnp.asarray(epochs))
