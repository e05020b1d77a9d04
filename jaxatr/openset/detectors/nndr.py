r"""Ratio of the distances to the two nearest classes (Mendes Júnior et al. 2017, "OSNN").

With t the training example nearest to s, and u the nearest one of another class, the score is

.. math:: -\frac{d(s, t)}{d(s, u)}

Examples between two classes have a ratio near 1, regardless of how near or far both are. The
predicted class is that of t. The variants take distances between maps of the network's stages (one
minus the cosine, as in ``spatial_stage1`` etc.), features of length 1, or the chips' pixels.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxatr.openset import gallery
from jaxatr.openset.detectors import spatial
from jaxatr.openset.gallery import Index, Remote, reduction
from jaxatr.openset.gallery.maps import gray, is_gray, mean_pool
from jaxatr.openset.inputs import finite, known_labels
from jaxatr.openset.score import Answer, Comparing, Score
from jaxatr.typing import ArrayLike, Float, Int, Shaped

SIDE = 64
"""Largest side of the chips compared by pixels; larger chips are reduced by averaging."""


class ClassExamples(NamedTuple):
    """A fitted model.

    Attributes:
      mean: ``[d]``, subtracted from every example.
      scale: ``[]``, by which the difference is divided.
      examples, half_squares, labels, index: the :class:`~jaxatr.openset.gallery.Gallery`.
      classes: ``[]``, k.
    """

    mean: Float[ArrayLike, " d"]
    scale: Float[ArrayLike, ""]
    examples: Shaped[ArrayLike, "n d"]
    half_squares: Float[ArrayLike, " n"]
    labels: Int[ArrayLike, " n"]
    classes: Int[ArrayLike, ""]
    index: Index | Remote | None = None


def fit(
    rows: Shaped[np.ndarray, "n d"],
    labels: Int[ArrayLike, " n"],
    classes: int,
    *,
    most: int = spatial.MOST,
    seed: int = 0,
) -> ClassExamples:
    """Builds a gallery of the training examples, centred and in float16.

    Args:
      rows: ``[n, d]``, vectors of training examples.
      classes: k, number of classes.
      most: largest number of examples; if there are more, a random sample is drawn, balanced over
        classes.
      seed: seed of the sample.

    Raises:
      ValueError: a value is not finite, a label is not a known class, or all examples are equal or
        of one class.
    """
    labels = known_labels(labels, len(rows), classes)
    chosen = reduction.sample(labels, most, seed=seed)
    rows, labels = finite("examples", rows[chosen]), labels[chosen]
    if not np.ptp(rows, axis=0).any():  # their computed scale may be a rounding error instead of 0
        raise ValueError("examples: all are equal, wanted different ones")
    mean = rows.mean(axis=0)
    # Scaled to fit the range of float16, which does not change ratios.
    scale = np.sqrt(np.mean(np.square(rows - mean)))
    built = gallery.build((rows - mean) / scale, labels, classes)
    return ClassExamples(mean, scale, classes=np.array(classes), **built._asdict())


def answer(model: ClassExamples, rows: Shaped[ArrayLike, "b d"]) -> Answer:
    """Computes minus the ratio, and the nearest class."""
    model = gallery.ready(model)
    searched, classes = gallery.of(model), int(model.classes)
    return of_distances(gallery.class_distances(searched, centred(model, rows), classes))


def centred(model: ClassExamples, rows: Shaped[ArrayLike, "b d"]) -> Any:
    """Centres and scales rows like the training examples."""
    return (gallery.in_double(rows) - model.mean[None]) / model.scale


def of_distances(distances: Float[ArrayLike, "b k"]) -> Answer:
    """Computes the score and the class from the distances to the nearest example of each class.

    If the two smallest distances are 0, the ratio is 1, because the classes are indistinguishable.

    Args:
      distances: ``[b, k]``, non-negative.

    >>> of_distances(np.array([[3.0, 1.0, 4.0]])).score.tolist()
    [-0.3333333333333333]
    """
    xp = gallery.numpy_of(distances)
    distances = xp.asarray(distances)
    nearest, other = gallery.two_nearest(distances)
    both = other == 0
    ratio = xp.where(both, 1, nearest / xp.where(both, 1, other))
    return Answer(-ratio, distances.argmin(axis=1), distances)


def pixels(chips: Shaped[ArrayLike, "n h w c"], width: int | None) -> Any:
    """Flattens chips to vectors, after reducing the larger side to at most :data:`SIDE`.

    Args:
      chips: in their raw units.
      width: length of the vectors, of one channel or of all; None to take one channel if all are
        equal.
    """
    pooled = mean_pool(chips, -(-max(chips.shape[1:3]) // SIDE))
    n, *sides, _ = pooled.shape
    one = is_gray(chips) if width is None else width == math.prod(sides)
    pooled = gray(pooled) if one else pooled
    return pooled.reshape(n, math.prod(pooled.shape[1:]))


def on_rows(name: str, title: str, need: str, rows_of: Callable[[Any, int | None], Any]) -> Score:
    """Creates a score that compares vectors.

    Args:
      name: name in records.
      title: title in tables.
      need: the array that the vectors are made of.
      rows_of: ``(array, length or None) -> [n, d]``, with the length of the model's vectors, or
        None for the examples that it is fitted to.
    """

    def vectors(model: ClassExamples, rows: Any) -> Any:
        return rows_of(rows, np.shape(model.mean)[0])

    def score(model: ClassExamples, rows: Any) -> Answer:
        return answer(model, vectors(model, rows))

    return Score.of_arrays(
        name,
        title,
        score,
        lambda rows, labels, classes: fit(rows_of(rows, None), labels, classes),
        arrays={"rows": need},
        traced=score,
        shapes=("labels", "classes"),
        names_class=True,
        recorded=False,
        model=ClassExamples,
        comparing=Comparing(
            lambda model, rows: centred(model, vectors(model, rows)), gallery.with_examples
        ),
    )


def on_maps(member: Score, stage: int) -> Score:
    """Creates a score from the distances of another score."""
    return Score.of_arrays(
        f"nndr_stage{stage}",
        f"ratio, map of stage {stage}",
        of_distances,
        traced=of_distances,
        arrays={"distances": f"distances_{member.name}"},
        names_class=True,
        members=(member,),
    )


PARTS = (
    *(on_maps(spatial.PARTS[stage - 1], stage) for stage in spatial.STAGES),
    on_rows("nndr_features", "ratio, features", "features", lambda rows, _: gallery.unit(rows)),
    on_rows("nndr_image", "ratio, pixels", "image", pixels),
)
