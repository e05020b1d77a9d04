"""Insertion and deletion: does the model need the pixels that a saliency map marks as important?

Appendix A of Lee and Kim (2021), after Petsiuk et al. (2018, "RISE"). Results under different
conventions cannot be compared, so every result records its convention. All of them share:

- The score is the softmax probability of the target class, which by default is the predicted class
  of the original image, right or wrong.
- Pixels are changed in order of decreasing saliency, ties in pixel order (row by row), and all
  channels of a pixel at once.
- A curve begins at the start image and ends when every pixel has been changed. (The paper's
  algorithms stop as soon as the image *equals* the end image, which for a black image is at once.)
- If the step does not divide the number of pixels, the last step is smaller. The area is computed
  by the trapezoidal rule over the share of pixels changed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jaxatr.explain.measures.blur import Blur
from jaxatr.explain.measures.saliency import check_maps
from jaxatr.typing import ArrayLike, Float, Int


@dataclass(frozen=True)
class Convention:
    """How a curve was computed; ``dataclasses.asdict`` converts it to JSON values.

    Attributes:
      measure: ``"insertion"`` or ``"deletion"``.
      start: the image at the beginning of the curve.
      end: the image at the end of the curve.
      pixels_per_step: pixels changed at once; the last step may change fewer.
      target: the class that is scored, ``"top class of the image"`` or ``"given"``.
      blur: blur of the start image of insertion.
      fill: fill of the end image of deletion, one value per channel or one for all.
      score: the quantity on the curve.
      ties: order of equally salient pixels.
      area: how the curve is reduced to a number.
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
      auc: ``[b]``, in [0, 1]; higher is better for insertion, lower for deletion.
      shares: ``[steps + 1]``, share of pixels changed, from 0 to 1.
      targets: ``[b]``, the scored classes.
      convention: how the curves were computed.
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
    """Measures how the target's score rises as pixels enter a blurred image (algorithm A1).

    Args:
      predict: maps images ``[n, h, w, c]`` to logits ``[n, k]``; traceable by JAX. It is compiled
        once per function object, with captured arrays as constants. Arrays bound in a
        ``jax.tree_util.Partial`` are arguments instead, so that new values need no compilation.
      images: ``[b, h, w, c]``, in the unit of ``predict``'s input.
      saliency: ``[b, h, w]``, higher is more important; only the order matters.
      pixels_per_step: pixels inserted at once. RISE's code uses one row of 224 for single images,
        and 8 rows for its tables.
      targets: ``[b]``, classes; by default each image's predicted class.
      blur: blur of the start image. The paper gives no size; the default has that of RISE's code,
        11 × 11 with σ 5. :data:`jaxatr.explain.measures.RISE_BLUR` is that code's exact kernel.
      batch_size: number of images per call of ``predict``. The device holds only these, their
        originals, and the intermediate results of ``predict``.

    Raises:
      ValueError: there is no image, a map is not finite, a target is not a class, or
        ``pixels_per_step`` or ``batch_size`` is below 1.
    """
    convention = Convention(
        "insertion", "blurred image", "image", pixels_per_step, _named(targets), blur=blur
    )
    images = np.asarray(images, np.float32)
    return _measured(convention, predict, blur(images), images, saliency, targets, batch_size)


def deletion(
    predict: Callable,
    images: Float[ArrayLike, "b h w c"],
    saliency: Float[ArrayLike, "b h w"],
    *,
    pixels_per_step: int,
    targets: Int[ArrayLike, " b"] | None = None,
    fill: float | Sequence[float] | Float[ArrayLike, " c"] = 0.0,
    batch_size: int = 64,
) -> Faithfulness:
    """Measures how the target's score falls as pixels are erased (algorithm A2).

    As printed, A2 scores the blank image D, which never changes, at the beginning and after every
    step. This function scores the image that is being erased, which is clearly meant.

    Args:
      predict: maps images ``[n, h, w, c]`` to logits ``[n, k]``, as in :func:`insertion`.
      images: ``[b, h, w, c]``, in the unit of ``predict``'s input.
      saliency: ``[b, h, w]``, higher is more important; only the order matters.
      pixels_per_step: pixels erased at once.
      targets: ``[b]``, classes; by default each image's predicted class.
      fill: value of erased pixels, in the unit of ``images``, one for all channels or one each.
        Zero is black for raw images, as in algorithm A2, and the mean colour for normalised ones,
        as in RISE's own code.
      batch_size: number of images per call of ``predict``.

    Raises:
      ValueError: as for :func:`insertion`, or ``fill`` has neither one value nor one per channel.
    """
    images = np.asarray(images, np.float32)
    values = tuple(np.ravel(fill).astype(float).tolist())
    if len(values) not in (1, images.shape[-1]):
        raise ValueError(f"fill: got {len(values)} values, wanted 1 or {images.shape[-1]}")
    blank = np.broadcast_to(np.asarray(values, np.float32), images.shape)
    convention = Convention(
        "deletion", "image", "filled image", pixels_per_step, _named(targets), fill=values
    )
    return _measured(convention, predict, images, blank, saliency, targets, batch_size)


def insertion_and_deletion(
    predict: Callable,
    images: Float[ArrayLike, "b h w c"],
    saliency: Float[ArrayLike, "b h w"],
    *,
    pixels_per_step: int = 0,
    batch_size: int = 64,
) -> tuple[Faithfulness, Faithfulness]:
    """Measures both for the predicted classes.

    Args:
      predict: maps images ``[n, h, w, c]`` to logits ``[n, k]``, as in :func:`insertion`.
      images: ``[b, h, w, c]``, in the unit of ``predict``'s input.
      saliency: ``[b, h, w]``, higher is more important; only the order matters.
      pixels_per_step: pixels changed at once; 0 for one row of the image.
      batch_size: number of images per call of ``predict``.

    Raises:
      ValueError: as for :func:`insertion`.
    """
    step = pixels_per_step or np.shape(images)[2]
    options: dict[str, Any] = {"pixels_per_step": step, "batch_size": batch_size}
    inserted = insertion(predict, images, saliency, **options)
    return inserted, deletion(predict, images, saliency, **options)


def _named(targets) -> str:
    return "top class of the image" if targets is None else "given"


def _measured(
    convention: Convention,
    predict: Callable,
    before: np.ndarray,
    after: np.ndarray,
    saliency: ArrayLike,
    targets: ArrayLike | None,
    batch_size: int,
) -> Faithfulness:
    """Computes the curves of images that change from ``before`` to ``after``."""
    per_step = convention.pixels_per_step
    for name, value in (("pixels_per_step", per_step), ("batch_size", batch_size)):
        if value < 1:
            raise ValueError(f"{name}: got {value}, wanted at least 1")
    if not before.size:
        raise ValueError(f"images: got shape {before.shape}, wanted at least one pixel")
    rank = _ranks(check_maps("saliency", saliency, before.shape[:3]))
    count, pixels = len(rank), rank[0].size
    changed = np.append(np.arange(0, pixels, per_step), pixels)
    # Each curve is computed from the original image, which determines the target class.
    way = slice(None, None, -1 if convention.measure == "insertion" else 1)
    top = np.zeros(count, int)
    if targets is not None:
        classes = jax.eval_shape(predict, before[:1]).shape[-1]
        top = _checked(targets, classes, count)
    curve = np.empty((count, len(changed)))
    for row, step, p in _batches(predict, before, after, rank, changed[way], batch_size):
        if targets is None:
            top[row[step == 0]] = p[step == 0].argmax(axis=1)
        curve[row, step] = p[np.arange(len(row)), top[row]]
    curve, shares = curve[:, way], changed / pixels
    return Faithfulness(curve, np.trapezoid(curve, shares, axis=1), shares, top, convention)


def _ranks(saliency: np.ndarray) -> np.ndarray:
    """Ranks pixels by decreasing saliency, ``[b, h, w]`` int32."""
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
    before: np.ndarray,
    after: np.ndarray,
    rank: np.ndarray,
    changed: np.ndarray,
    batch_size: int,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields rows, steps and probabilities ``[n, k]`` of every image after every step.

    Only the originals that a batch needs are sent to the device. The arrays sent have a fixed
    shape, independent of the number of images, so that one compilation serves a whole data set.
    """
    predict = predict if isinstance(predict, Partial) else Partial(predict)
    steps, last = len(changed), len(rank) - 1
    total = len(rank) * steps
    size = min(batch_size, total)
    images_in_batch = (size - 2) // steps + 2  # at most, wherever it begins
    for start in range(0, total, size):
        row, step = np.divmod(np.minimum(np.arange(start, start + size), total - 1), steps)
        sent = np.minimum(np.arange(row[0], row[0] + images_in_batch), last)
        found = _probabilities(
            predict, before[sent], after[sent], rank[sent], row - row[0], changed[step]
        )
        kept = min(size, total - start)
        yield row[:kept], step[:kept], np.asarray(found)[:kept]


@jax.jit
def _probabilities(predict, before, after, rank, row, changed):
    taken = (rank[row] < changed[:, None, None])[..., None]
    return jax.nn.softmax(predict(jnp.where(taken, after[row], before[row])).astype(jnp.float32))
