"""RISE: random masks, averaged with the target's probability under each as the weight."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.explain.inputs import (
    Baseline,
    Function,
    as_argument,
    check_at_least,
    checked_images,
    one_baseline,
    target_classes,
)
from jaxatr.explain.masking import bar, batches, probabilities, weighted_sum
from jaxatr.explain.method import Method
from jaxatr.explain.scaling import finished
from jaxatr.typing import Array, ArrayLike, Float, Int, Key


def rise(
    predict: Function,
    images: Float[ArrayLike, "b h w c"],
    *,
    key: Key,
    targets: Int[ArrayLike, " b"] | None = None,
    samples: int = 8000,
    cells: int = 7,
    keep: float = 0.5,
    baseline: Baseline = 0.0,
    batch_size: int = 100,
    raw: bool = False,
    progress: bool = False,
) -> Float[Array, "b h w"]:
    r"""Computes RISE maps (Petsiuk et al. 2018, equation 6) with the masks of :func:`rise_masks`.

    .. math::
      S = \frac{1}{N p} \sum_{i=1}^{N} f(x \odot M_i)\, M_i

    where f is the target's softmax probability. The notebooks of the authors' repository disagree
    about the constants (N is 6000, 5000 or 2000, the grid 8 or 10, p 0.1 or 0.5), so the defaults
    are those of the paper: p = 0.5, a grid of 7, and the N of its residual network (4000 for VGG).

    The map has no natural zero: if no mask changes the probability (one class, a constant image),
    it only shows how unevenly the masks cover the image.

    Args:
      predict: maps images to logits ``[b, k]``.
      images: ``[b, h, w, c]``.
      key: random key of the masks, which all images share.
      targets: ``[b]``, classes; None for the predicted classes.
      samples: N, number of forward passes per image.
      cells: rows and columns of a mask's grid.
      keep: p, the share of the grid that is kept.
      baseline: replacement for masked pixels, a number, ``[c]`` or ``[h, w, c]`` in the images'
        unit. The authors mask normalised images, whose 0 is the data's mean; for images in another
        unit, pass that mean.
      batch_size: number of masked copies per batch, all of one image; it bounds the memory.
      raw: return S itself instead of scaling to [0, 1].
      progress: show a progress bar at a terminal.

    Raises:
      ValueError: an argument is invalid.
    """
    check_at_least(1, batch_size=batch_size)
    images, predict = checked_images(images), as_argument(predict)
    hidden, shape = one_baseline(baseline, images), images.shape[1:3]
    _check_masks(samples, cells, keep)
    targets = target_classes(predict, images, targets, batch_size)
    totals = [jnp.zeros(shape)] * len(images)
    with bar(samples * len(images), "RISE", progress=progress) as shown:
        for numbers in batches(samples, batch_size):
            masks = _masks(key, numbers, shape, cells, keep)
            counted = numbers < samples
            for i, image in enumerate(images):
                totals[i] = _added(totals[i], predict, image, hidden, targets[i], masks, counted)
                jax.block_until_ready(totals[i])  # to bound memory by the batch size
                shown.update(counted.sum())
    return finished(jnp.stack(totals) / (samples * keep), raw=raw)


@jax.jit
def _added(total, predict, image, hidden, target, masks, counted) -> Float[Array, "h w"]:
    scores = probabilities(predict, image, hidden, target, masks)
    return total + weighted_sum(jnp.where(counted, scores, 0), masks).astype(total.dtype)


def rise_masks(
    key: Key, samples: int, shape: tuple[int, int], *, cells: int = 7, keep: float = 0.5
) -> Float[Array, "n h w"]:
    """Generates the masks that :func:`rise` uses for a key (section 3.2 of the paper).

    A grid of ``cells`` × ``cells`` numbers, each 1 with probability ``keep`` and otherwise 0, is
    upsampled bilinearly to ``cells + 1`` cells per side of ``ceil(side / cells)`` pixels each, and
    cropped to the image at a random offset within one cell. A mask depends only on the key and on
    its own number.

    Args:
      key: random key of the masks.
      samples: number of masks.
      shape: rows and columns of the image; they need be neither equal nor multiples of ``cells``.
      cells: rows and columns of the grid.
      keep: probability of a 1.

    Raises:
      ValueError: a number is out of range.

    >>> rise_masks(jax.random.key(0), 3, (32, 48)).shape
    (3, 32, 48)
    """
    _check_masks(samples, cells, keep)
    check_at_least(1, rows=shape[0], columns=shape[1])
    return _masks(key, np.arange(samples), shape, cells, keep)


def _check_masks(samples: int, cells: int, keep: float) -> None:
    check_at_least(1, samples=samples, cells=cells)
    if not 0 < keep < 1:
        raise ValueError(f"keep: got {keep}, wanted a probability between 0 and 1")


@partial(jax.jit, static_argnums=(2, 3))
def _masks(
    key: Key,
    numbers: Int[ArrayLike, " n"],
    shape: tuple[int, int],
    cells: int,
    keep: ArrayLike | float,
) -> Float[Array, "n h w"]:
    cell = jnp.array([-(-side // cells) for side in shape], jnp.float32)
    enlarged = tuple((cells + 1) * -(-side // cells) for side in shape)

    def mask(number: Int[Array, ""]) -> Float[Array, "h w"]:
        # Grid and offset share one draw, because each further one takes seconds to compile.
        own = jax.random.fold_in(key, number)
        drawn = jax.random.uniform(own, (cells * cells + 2,), jnp.float32)
        grid = (drawn[2:] < keep).astype(jnp.float32).reshape(cells, cells)
        offset = (drawn[:2] * cell).astype(jnp.int32)
        return jax.lax.dynamic_slice(jax.image.resize(grid, enlarged, "bilinear"), offset, shape)

    return jax.vmap(mask)(jnp.asarray(numbers))


PART = Method(
    "rise",
    "RISE",
    partial(rise, raw=True),
    draws=True,
    hides_behind_mean=True,  # as the authors do
    batching="copies",
)
