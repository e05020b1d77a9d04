"""LIME: a linear model of what each superpixel does to the target's probability."""

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
    r"""Returns the LIME map (Ribeiro et al. 2016): each pixel has its superpixel's coefficient.

    Superpixels are shown (1) or hidden (0) at random, each with probability 1/2, and all are shown
    in the first sample; one that is hidden becomes its mean colour. The target's probability is
    then regressed on them, with a penalty on the squared coefficients and none on the intercept,
    and with the weight :math:`\sqrt{\exp(-d^2 / \sigma^2)}` of a sample, where d is its cosine
    distance from the first one. The constants are those of the authors' repository. All superpixels
    count, as there.

    Args:
      predict: from images to logits ``[b, k]``.
      images: ``[b, h, w, c]``.
      key: of the samples, which images with equally many superpixels share.
      targets: ``[b]``, classes; None for the predicted ones.
      segmentation: from one image, a NumPy array ``[h, w, c]``, to integers ``[h, w]``, one per
        superpixel. :func:`quickshift` takes images of one or three channels.
      samples: forward passes per image.
      kernel_width: σ.
      ridge: the penalty.
      batch_size: masked copies of one image at a time. Memory is that of so many images and masks,
        and of the forward pass of ``predict`` on them.
      raw: return the coefficients themselves, with their signs, not scaled to [0, 1].
      progress: show a bar at a terminal.

    Raises:
      ValueError: an argument does not fit, or the segmentation's result.
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
    """Returns the superpixels' labels as 0, 1, 2 …"""
    labels = np.asarray(labels)
    if labels.shape != shape or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"segmentation: got {labels.dtype} of shape {labels.shape}, wanted integers of shape "
            f"{shape}"
        )
    return np.unique(labels, return_inverse=True)[1].reshape(shape).astype(np.int32)


def _shows(key: Key, samples: int, count: int) -> Float[np.ndarray, "n s"]:
    """Returns which superpixels each sample shows, as 0 and 1."""
    # Drawn for a power of two, so that few numbers of superpixels mean compiling anew.
    drawn = jax.random.bernoulli(key, 0.5, (samples, _power_of_two(count)))
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
    """Returns the target's probability for each sample."""
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
    """Returns the image in which each superpixel has its mean colour."""
    flat, pixels = segments.ravel(), image.reshape(-1, image.shape[-1])
    sums = np.stack([np.bincount(flat, channel) for channel in pixels.T], axis=-1)
    return (sums / np.bincount(flat)[:, None])[segments]


def _coefficients(
    shows: Float[np.ndarray, "n s"],
    scores: Float[np.ndarray, " n"],
    kernel_width: float,
    penalty: float,
) -> Float[np.ndarray, " s"]:
    """Returns the superpixels' coefficients, 0 where below the rounding of the probabilities."""
    from sklearn.linear_model import Ridge  # takes a second, and a training has no use for it

    distance = 1 - np.sqrt(shows.mean(axis=1, dtype=np.float64))  # cosine, from all ones
    weights = np.exp(-(distance**2) / (2 * kernel_width**2))
    model = Ridge(alpha=penalty).fit(
        shows.astype(np.float64), scores.astype(np.float64), sample_weight=weights
    )
    rounding = np.finfo(np.float32).eps * scores.max()
    return np.where(np.abs(model.coef_) > rounding, model.coef_, 0)


METHOD = Method("lime", "LIME", partial(lime, raw=True), draws=True, batching="copies")
