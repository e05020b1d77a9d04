"""Insertion and deletion: does the model need the pixels that a saliency map calls important?

Appendix A of Lee and Kim (2021), after Petsiuk et al. (2018, "RISE"). Figures of different
conventions cannot be compared, so every result carries its own; what is the same in all of them:

- The score is the softmax probability of the target class: by default the top class of the
  original image, right or wrong.
- Pixels are taken in order of falling saliency, equal ones in pixel order (row by row); all
  channels of a pixel at once.
- A curve begins at the start image and ends when every pixel was changed. (The paper's algorithms
  stop as soon as the image *equals* its end, which for a black image is at once.)
- Where the step does not divide the number of pixels the last step is smaller. The area is the
  trapezoid over the share of pixels changed: over equal steps, where it divides.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jaxatr.metrics.blur import Blur
from jaxatr.metrics.saliency import check_maps
from jaxatr.typing import ArrayLike, Float, Int


@dataclass(frozen=True)
class Convention:
    """How a curve was made; ``dataclasses.asdict`` gives what JSON can hold.

    Attributes:
      measure: ``"insertion"`` or ``"deletion"``.
      start: the image that the curve begins with.
      end: the image that it ends with.
      pixels_per_step: pixels changed at once; the last step may change fewer.
      target: whose score it is: ``"top class of the image"`` or ``"given"``.
      blur: of the insertion's start.
      fill: of the deletion's end, one value a channel or one for all.
      score: what is measured.
      ties: which of equally salient pixels comes first.
      area: how the curve became one number.
    """

    measure: Literal["insertion", "deletion"]
    start: str
    end: str
    pixels_per_step: int
    target: str
    blur: Blur | None = None
    fill: tuple[float, ...] | None = None
    score: str = "softmax probability of the target class"
    ties: str = "pixel order"
    area: str = "trapezoid over the share of pixels changed"


@dataclass(frozen=True)
class Faithfulness:
    """Curves of some images and their areas.

    Attributes:
      curve: ``[b, steps + 1]``, the target class's probability after each step.
      auc: ``[b]``, in [0, 1]; high is good for insertion, low for deletion.
      shares: ``[steps + 1]``, of the pixels that are changed, from 0 to 1.
      targets: ``[b]``, the classes.
      convention: how all this was made.
    """

    curve: Float[np.ndarray, "b s"]
    auc: Float[np.ndarray, " b"]
    shares: Float[np.ndarray, " s"]
    targets: Int[np.ndarray, " b"]
    convention: Convention


def insertion(
    predict: Callable,
    images: Float[ArrayLike, "b h w c"],
    saliency: Float[ArrayLike, "b h w"],
    *,
    pixels_per_step: int,
    targets: Int[ArrayLike, " b"] | None = None,
    blur: Blur = Blur(),  # noqa: B008 (frozen)
    batch_size: int = 64,
) -> Faithfulness:
    """Returns how the target's score rises as pixels enter a blurred image, algorithm A1.

    Args:
      predict: images ``[n, h, w, c]`` → logits ``[n, k]``, traceable by jax. It is compiled once
        per function, with what it closes over as constants; as a ``jax.tree_util.Partial`` its
        bound arrays are arguments, and other parameters need no compilation.
      images: ``[b, h, w, c]``, as ``predict`` takes them.
      saliency: ``[b, h, w]``, higher is more important; only the order matters.
      pixels_per_step: pixels entered at once. RISE's code takes one row of 224 in its figures of
        one image, 8 rows in its tables.
      targets: ``[b]``, classes; by default each image's top class.
      blur: of the start image. The paper says no size; the default has that of RISE's code, 11 ×
        11 with σ 5, and :data:`jaxatr.metrics.RISE_BLUR` is that code's kernel exactly.
      batch_size: images at a time through ``predict``; the memory of the device is that of so many.

    Raises:
      ValueError: there is no image, a map is not finite or of other images, a target is no
        class, or ``pixels_per_step`` or ``batch_size`` is below 1.
    """
    convention = Convention(
        "insertion", "blurred image", "image", pixels_per_step, _named(targets), blur=blur
    )
    images = np.asarray(images, np.float32)
    ends = images, blur(images), images
    return _measured(convention, predict, ends, saliency, targets, batch_size)


def deletion(
    predict: Callable,
    images: Float[ArrayLike, "b h w c"],
    saliency: Float[ArrayLike, "b h w"],
    *,
    pixels_per_step: int,
    targets: Int[ArrayLike, " b"] | None = None,
    fill: float | tuple[float, ...] = 0.0,
    batch_size: int = 64,
) -> Faithfulness:
    """Returns how the target's score falls as pixels are erased, algorithm A2.

    As printed, A2 scores its blank image D after every step, which never changes, and also to begin
    with; the image that is being erased is meant.

    Args:
      predict: as :func:`insertion` has it.
      images: ``[b, h, w, c]``, as ``predict`` takes them.
      saliency: ``[b, h, w]``, higher is more important; only the order matters.
      pixels_per_step: pixels erased at once.
      targets: ``[b]``, classes; by default each image's top class.
      fill: what an erased pixel becomes, in the units of ``images``, for all channels or for each.
        Zero is black where images are raw, as algorithm A2 has it, and the mean colour where they
        are normalised, as RISE's own code has it.
      batch_size: as :func:`insertion` has it.

    Raises:
      ValueError: as :func:`insertion` raises, or ``fill`` has neither one value nor one a channel.
    """
    images = np.asarray(images, np.float32)
    values = tuple(map(float, np.atleast_1d(fill)))
    if len(values) not in (1, images.shape[-1]):
        raise ValueError(f"fill: got {len(values)} values, wanted 1 or {images.shape[-1]}")
    blank = np.broadcast_to(np.float32(values), images.shape)
    convention = Convention(
        "deletion", "image", "filled image", pixels_per_step, _named(targets), fill=values
    )
    return _measured(convention, predict, (images, images, blank), saliency, targets, batch_size)


def _named(targets) -> str:
    return "top class of the image" if targets is None else "given"


def _measured(
    convention: Convention,
    predict: Callable,
    ends: tuple[np.ndarray, np.ndarray, np.ndarray],
    saliency: ArrayLike,
    targets: ArrayLike | None,
    batch_size: int,
) -> Faithfulness:
    """Returns the curves from ``ends[1]`` to ``ends[2]``, of the top classes of ``ends[0]``."""
    images, before, after = ends
    step = convention.pixels_per_step
    for name, value in (("pixels_per_step", step), ("batch_size", batch_size)):
        if value < 1:
            raise ValueError(f"{name}: got {value}, wanted at least 1")
    if not images.size:
        raise ValueError(f"images: got shape {images.shape}, wanted at least one pixel")
    rank = _ranks(check_maps("saliency", saliency, images.shape[:3]))
    count, pixels = len(images), rank[0].size
    changed = np.append(np.arange(0, pixels, step), pixels)
    run = partial(_batches, predict, rank, min(batch_size, count * len(changed)))
    if targets is None:
        found = run(images, images, np.arange(count), np.zeros(count, int))
        targets = np.concatenate([probability.argmax(axis=1) for _, probability in found])
    targets = _checked(targets, jax.eval_shape(predict, images[:1]).shape[-1], count)
    path = run(before, after, np.repeat(np.arange(count), len(changed)), np.tile(changed, count))
    scores = np.concatenate([p[np.arange(len(rows)), targets[rows]] for rows, p in path])
    curve, shares = scores.reshape(count, -1).astype(np.float64), changed / pixels
    return Faithfulness(curve, np.trapezoid(curve, shares, axis=1), shares, targets, convention)


def _ranks(saliency: np.ndarray) -> np.ndarray:
    """Returns each pixel's place in the order of falling saliency, [b, h, w] int32."""
    order = np.argsort(-saliency.reshape(len(saliency), -1), axis=1, kind="stable")
    rank = np.empty(order.shape, np.int32)
    np.put_along_axis(rank, order, np.arange(order.shape[1], dtype=np.int32)[None], axis=1)
    return rank.reshape(saliency.shape)


def _checked(targets: ArrayLike, classes: int, count: int) -> np.ndarray:
    targets = np.asarray(targets)
    if targets.shape != (count,) or not np.issubdtype(targets.dtype, np.integer):
        raise ValueError(
            f"targets: got {targets.dtype} {targets.shape}, wanted integers, one for each of "
            f"{count} images"
        )
    wrong = targets[(targets < 0) | (targets >= classes)]
    if wrong.size:
        raise ValueError(f"targets: got {wrong[0]}, wanted integers in [0, {classes})")
    return targets


def _batches(
    predict: Callable,
    rank: np.ndarray,
    size: int,
    before: np.ndarray,
    after: np.ndarray,
    rows: np.ndarray,
    changed: np.ndarray,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields rows and probabilities [n, k] of images, those numbered ``rows``, as they change.

    Gathered here and not on the device, so that neither its memory nor what is compiled depends on
    how many images there are.
    """
    predict = predict if isinstance(predict, Partial) else Partial(predict)
    for start in range(0, len(rows), size):
        part = np.minimum(np.arange(start, start + size), len(rows) - 1)
        row = rows[part]
        found = _probabilities(predict, before[row], after[row], rank[row], changed[part])
        kept = min(size, len(rows) - start)
        yield row[:kept], np.asarray(found)[:kept]


@jax.jit
def _probabilities(predict, before, after, rank, changed):
    images = jnp.where((rank < changed[:, None, None])[..., None], after, before)
    return jax.nn.softmax(predict(images).astype(jnp.float32))
