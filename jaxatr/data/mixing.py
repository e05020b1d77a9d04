"""Mixtures of two images, which are of two classes: mixup and CutMix.

The label of a mixture is a mixture too: a loss is the one of the image's own label times its share,
plus the one of the partner's label times the rest.
"""

import jax
import jax.numpy as jnp

from jaxatr.typing import Array, Float, Shaped

Mixed = tuple[Float[Array, "b h w c"], Float[Array, " b"]]
"""The mixtures, and the share of each image's own label in its mixture."""


def mixup(
    keys: Shaped[Array, " b"],
    images: Float[Array, "b h w c"],
    partners: Float[Array, "b h w c"],
    alpha: float,
) -> Mixed:
    """Returns weighted means of two images (Zhang et al. 2018, equation 1).

    Args:
      keys: one per image.
      images: chips.
      partners: another chip for each.
      alpha: the share of an image is drawn from Beta(alpha, alpha), each its own, where the
        published code draws one for a batch.
    """
    share = jax.vmap(lambda key: jax.random.beta(key, alpha, alpha))(keys)
    weight = share[:, None, None, None]
    return weight * images + (1 - weight) * partners, share


def cutmix(
    keys: Shaped[Array, " b"],
    images: Float[Array, "b h w c"],
    partners: Float[Array, "b h w c"],
    alpha: float,
) -> Mixed:
    """Returns images with a rectangle of another one in its place (Yun et al. 2019, section 3.1).

    The rectangle has the image's shape and a share of its area that is drawn from
    Beta(alpha, alpha). Its centre is uniform, and what lies outside of the image is cut off; the
    labels' shares are those of the pixels that were taken over in the end.

    Args:
      keys: one per image.
      images: chips.
      partners: another chip for each.
      alpha: of the distribution.
    """
    _, height, width, _ = images.shape

    def inside(key: Array) -> Array:
        size, place = jax.random.split(key)
        side = jnp.sqrt(1 - jax.random.beta(size, alpha, alpha))
        centre = jax.random.uniform(place, (2,))

        def along(length: int, middle: Array) -> Array:
            middle, half = jnp.floor(middle * length), jnp.floor(side * length) / 2
            pixel = jnp.arange(length)
            return (pixel >= jnp.floor(middle - half)) & (pixel < jnp.floor(middle + half))

        return along(height, centre[0])[:, None] & along(width, centre[1])[None]

    taken = jax.vmap(inside)(keys)
    share = 1 - jnp.mean(taken, axis=(1, 2), dtype=jnp.float32)
    return jnp.where(taken[..., None], partners, images), share


def mix(
    keys: Shaped[Array, " b"],
    images: Float[Array, "b h w c"],
    partners: Float[Array, "b h w c"],
    *,
    mixup_alpha: float = 0.0,
    cutmix_alpha: float = 0.0,
    probability: float = 1.0,
) -> Mixed:
    """Returns mixtures of one kind or the other, and some images as they are.

    Args:
      keys: one per image.
      images: chips.
      partners: another chip for each.
      mixup_alpha: of :func:`mixup`; 0 is off.
      cutmix_alpha: of :func:`cutmix`; 0 is off. Where both are on, each is as likely.
      probability: that an image is mixed.
    """
    own, choice, chance = (jax.vmap(jax.random.fold_in, (0, None))(keys, n) for n in range(3))
    mixed, share = images, jnp.ones(len(images))
    if mixup_alpha:
        mixed, share = mixup(own, images, partners, mixup_alpha)
    if cutmix_alpha:
        cut, rest = cutmix(own, images, partners, cutmix_alpha)
        chosen = jax.vmap(jax.random.bernoulli)(choice) | (mixup_alpha == 0)
        mixed = jnp.where(chosen[:, None, None, None], cut, mixed)
        share = jnp.where(chosen, rest, share)
    kept = jax.vmap(lambda key: jax.random.bernoulli(key, 1 - probability))(chance)
    return jnp.where(kept[:, None, None, None], images, mixed), jnp.where(kept, 1, share)
