"""LIME: a linear model of each superpixel's effect on the target's probability."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jaxatr.explain.inputs import (
    Function,
    as_argument,
    check_at_least,
    checked_images,
    target_classes,
)
from jaxatr.explain.masking import bar, batches, probabilities
from jaxatr.explain.method import Method
from jaxatr.explain.scaling import finished
from jaxatr.explain.superpixels import quickshift
from jaxatr.extras import extra
from jaxatr.typing import Array, ArrayLike, Float, Int, Key


def lime(
    predict: Function,
    images: Float[ArrayLike, "b h w c"],
    *,
    key: Key,
    targets: Int[ArrayLike, " b"] | None = None,
    segmentation: Callable[[np.ndarray], np.ndarray] = quickshift,
    samples: int = 1000,
    kernel_width: float = 0.25,
    ridge: float = 1.0,
    batch_size: int = 100,
    raw: bool = False,
    progress: bool = False,
) -> Float[Array, "b h w"]:
    r"""Computes LIME maps (Ribeiro et al. 2016): each pixel has its superpixel's coefficient.

    Superpixels are shown (1) or hidden (0) at random, each with probability 1/2; the first sample
    shows all of them. A hidden superpixel is filled with its mean colour. Ridge regression then
    predicts the target's probability from the superpixels shown, without a penalty on the
    intercept, and with the weight :math:`\sqrt{\exp(-d^2 / \sigma^2)}` for a sample at cosine
    distance d from the first one. The constants are those of the authors' repository, and as in
    that repository all superpixels are used.

    Args:
      predict: maps images to logits ``[b, k]``.
      images: ``[b, h, w, c]``.
      key: random key of the samples, which images with equally many superpixels share.
      targets: ``[b]``, classes; None for the predicted classes.
      segmentation: maps an image, a NumPy array ``[h, w, c]``, to integers ``[h, w]``, the number
        of each pixel's superpixel. The default, :func:`quickshift`, takes images of one or three
        channels.
      samples: number of forward passes per image.
      kernel_width: σ.
      ridge: penalty on the squared coefficients.
      batch_size: number of masked copies per batch, all of one image; it bounds the memory.
      raw: return the signed coefficients instead of scaling to [0, 1].
      progress: show a progress bar at a terminal.

    Raises:
      ValueError: an argument or the segmentation's result is invalid.
    """
    check_at_least(1, batch_size=batch_size, samples=samples)
    for name, value in (("kernel_width", kernel_width), ("ridge", ridge)):
        if not value > 0:
            raise ValueError(f"{name}: got {value}, wanted a positive number")
    images, predict = checked_images(images), as_argument(predict)
    targets = target_classes(predict, images, targets, batch_size)
    maps = []
    with bar(samples * len(images), "LIME", progress=progress) as shown:
        for image, target in zip(images, targets, strict=True):
            segments = _numbered(segmentation(np.asarray(image)), image.shape[:2])
            shows = _shows(key, samples, int(segments.max()) + 1)
            scores = _scores(predict, image, target, segments, shows, batch_size, shown.update)
            maps.append(_coefficients(shows, scores, kernel_width, ridge)[segments])
    return finished(jnp.asarray(np.stack(maps), jnp.float32), raw=raw)


def _numbered(labels: np.ndarray, shape: tuple[int, ...]) -> Int[np.ndarray, "h w"]:
    """Renumbers the superpixels as 0, 1, 2 …"""
    labels = np.asarray(labels)
    if labels.shape != shape or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"segmentation: got {labels.dtype} of shape {labels.shape}, wanted integers of shape "
            f"{shape}"
        )
    return np.unique(labels, return_inverse=True)[1].reshape(shape).astype(np.int32)


def _shows(key: Key, samples: int, count: int) -> Float[np.ndarray, "n s"]:
    """Draws the superpixels that each sample shows (1) and hides (0)."""
    # Drawn for a power of two, so that few numbers of superpixels need another compilation.
    drawn = jax.random.bernoulli(key, np.float32(0.5), (samples, _power_of_two(count)))
    shows = np.array(drawn[:, :count], np.float32)
    shows[0] = 1
    return shows


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


def _scores(
    predict: Partial,
    image: Float[Array, "h w c"],
    target: Int[Array, ""],
    segments: Int[np.ndarray, "h w"],
    shows: Float[np.ndarray, "n s"],
    batch_size: int,
    advance: Callable[[int], object],
) -> Float[np.ndarray, " n"]:
    """Computes the target's probability for each sample."""
    samples, count = shows.shape
    hidden = _mean_colours(np.asarray(image, np.float64), segments).astype(image.dtype)
    padded = np.zeros((samples, _power_of_two(count)), np.float32)
    padded[:, :count] = shows
    scores = []
    for numbers in batches(samples, batch_size):
        keep = _keep(padded[np.minimum(numbers, samples - 1)], segments)
        scores.append(np.asarray(probabilities(predict, image, hidden, target, keep)))
        advance(int(np.sum(numbers < samples)))
    return np.concatenate(scores)[:samples]


@jax.jit
def _keep(shows: Float[ArrayLike, "m s"], segments: Int[ArrayLike, "h w"]) -> Float[Array, "m h w"]:
    return jnp.asarray(shows)[:, jnp.asarray(segments)]


def _mean_colours(
    image: Float[np.ndarray, "h w c"], segments: Int[np.ndarray, "h w"]
) -> Float[np.ndarray, "h w c"]:
    """Fills each superpixel with its mean colour."""
    flat, pixels = segments.ravel(), image.reshape(-1, image.shape[-1])
    sums = np.stack([np.bincount(flat, channel) for channel in pixels.T], axis=-1)
    return (sums / np.bincount(flat)[:, None])[segments]


def _coefficients(
    shows: Float[np.ndarray, "n s"],
    scores: Float[np.ndarray, " n"],
    kernel_width: float,
    penalty: float,
) -> Float[np.ndarray, " s"]:
    """Fits the superpixels' coefficients; those below the rounding of the probabilities are 0."""
    linear = extra("sklearn.linear_model", "lime", "LIME")  # slow to import
    distance = 1 - np.sqrt(shows.mean(axis=1, dtype=np.float64))  # cosine, from all ones
    weights = np.exp(-(distance**2) / (2 * kernel_width**2))
    model = linear.Ridge(alpha=penalty).fit(
        shows.astype(np.float64), scores.astype(np.float64), sample_weight=weights
    )
    rounding = np.finfo(np.float32).eps * scores.max()
    return np.where(np.abs(model.coef_) > rounding, model.coef_, 0)


PART = Method("lime", "LIME", partial(lime, raw=True), draws=True, batching="copies")
