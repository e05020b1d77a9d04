"""Mixtures of two images: mixup and CutMix.

The loss of a mixture is the loss for the image's own label times its share, plus the loss for the
partner's label times the rest.
"""

import jax
import jax.numpy as jnp

from jaxatr.typing import Array, Float, Shaped

Mixed = tuple[Float[Array, "b h w c"], Float[Array, " b"]]
"""The mixtures, and the share of each image in its mixture."""


def mixup(
    keys: Shaped[Array, " b"],
    images: Float[Array, "b h w c"],
    partners: Float[Array, "b h w c"],
    alpha: float,
) -> Mixed:
    """Computes weighted means of pairs of images (Zhang et al. 2018, equation 1).

    Args:
      keys: one per image.
      images: chips.
      partners: the other chip of each pair.
      alpha: the share of each image is drawn from Beta(alpha, alpha); the published code draws one
        share per batch instead.
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
    """Pastes a rectangle of the partner into each image (Yun et al. 2019, section 3.1).

    The rectangle has the image's aspect ratio and a uniformly drawn centre. Its share of the area
    is one minus a draw from Beta(alpha, alpha). It is clipped at the image's border, and the
    labels' shares follow from the pixels actually replaced.

    Args:
      keys: one per image.
      images: chips.
      partners: the other chip of each pair.
      alpha: parameter of the Beta distribution.
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
    """Mixes images by mixup or CutMix, leaving some of them unchanged.

    Args:
      keys: one per image.
      images: chips.
      partners: the other chip of each pair.
      mixup_alpha: alpha of :func:`mixup`; 0 is off.
      cutmix_alpha: alpha of :func:`cutmix`; 0 is off. If both are on, each is equally likely.
      probability: probability that an image is mixed.
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
