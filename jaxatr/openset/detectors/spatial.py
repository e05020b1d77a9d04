"""Cosine to the nearest training example on the unpooled map of one of the network's stages.

Pooling and the last layers keep the information that separates the known classes from each other,
and discard the information that separates them from unknown ones (Roth et al. 2022, "PatchCore";
Cohen and Hoshen 2020, "SPADE"). Maps are therefore compared pixel by pixel: the mean training map
is subtracted, a central window is cropped, and the result is flattened and scaled to length 1. The
predicted class is that of the nearest training example.
"""

from typing import Any, NamedTuple

import numpy as np

from jaxatr.openset import gallery
from jaxatr.openset.gallery import Index, Remote, reduction
from jaxatr.openset.gallery.maps import central
from jaxatr.openset.inputs import known_labels
from jaxatr.openset.score import Answer, Comparing, Score
from jaxatr.typing import ArrayLike, Float, Int, Shaped

MOST = 10_000
"""Largest number of training examples in a gallery, which bounds the time of an evaluation."""

MOST_BYTES = 4096
"""Largest size in bytes of a training example in the galleries of the package's scores; larger maps
are projected."""

MOST_OF_ALL = 24 * 2**20
"""Largest size in bytes of such a gallery, which bounds the time of a search. With more than 6,144
examples, each takes fewer than :data:`MOST_BYTES`."""

STAGES = (1, 2, 3, 4)


class Spatial(NamedTuple):
    """A fitted model.

    Attributes:
      mean: ``[h, w, f]``, mean of the training maps.
      axes: ``[f, m]``, directions that each pixel is projected to; ``[f, 0]`` for no projection.
      window: ``[]``, share of each side that is compared.
      examples, half_squares, labels, index: the :class:`~jaxatr.openset.gallery.Gallery`.
      classes: ``[]``, k.
    """

    mean: Float[ArrayLike, "h w f"]
    axes: Float[ArrayLike, "f m"]
    window: Float[ArrayLike, ""]
    examples: Shaped[ArrayLike, "n d"]
    half_squares: Float[ArrayLike, " n"]
    labels: Int[ArrayLike, " n"]
    classes: Int[ArrayLike, ""]
    index: Index | Remote | None = None


def fit(
    maps: Shaped[np.ndarray, "n h w f"],
    labels: Int[ArrayLike, " n"],
    classes: int,
    *,
    window: float = 1.0,
    channels: int | None = None,
    most_bytes: int | None = None,
    keep: float | None = None,
    most: int = MOST,
    seed: int = 0,
) -> Spatial:
    """Builds a gallery of the training examples' maps.

    An example takes two bytes per pixel of the window and channel. ``channels`` or ``most_bytes``
    reduces the channels, and ``keep`` the number of examples.

    Args:
      maps: ``[n, h, w, f]``, of training examples.
      classes: k, number of classes.
      window: share of each side of the map that is compared, around its centre.
      channels: number of principal directions to which the f channels of each pixel are projected.
      most_bytes: largest size of an example in bytes. The channels are projected to as many
        directions as fit, at least one.
      keep: share of the examples to keep, as a coreset
        (:func:`jaxatr.openset.gallery.reduction.coreset`).
      most: largest number of examples; if there are more, a random sample is drawn, balanced over
        classes.
      seed: seed of the sample and of the coreset's projection.

    Raises:
      ValueError: a map is not finite; a label is not a known class; all examples are of one class;
        both ``channels`` and ``most_bytes`` are given; or ``window``, ``channels`` or ``keep`` is
        out of range.
    """
    if channels is not None and most_bytes is not None:
        raise ValueError(f"got channels={channels} and most_bytes={most_bytes}, wanted one of them")
    if keep is not None and not 0 < keep <= 1:
        raise ValueError(f"keep: got {keep}, wanted a share in (0, 1]")
    labels = known_labels(labels, len(maps), classes)
    with np.errstate(invalid="ignore"):  # checked below
        mean = maps.mean(axis=0, dtype=np.float32)
    if not np.isfinite(mean).all():
        raise ValueError("maps: some are not finite")
    width = maps.shape[-1]
    chosen = reduction.sample(labels, most, seed=seed)
    axes = np.zeros((width, 0), np.float32)
    if channels is None and most_bytes is not None:
        afforded = most_bytes // (2 * central(mean, window)[..., 0].size)
        channels = max(1, afforded) if afforded < width else None
    if channels is not None:
        pixels = (central(maps[chosen], window) - central(mean, window)).reshape(-1, width)
        axes = reduction.pca(pixels, channels).axes.astype(np.float32)
    rows = _rows(mean, axes, window, maps[chosen])
    labels = labels[chosen]
    if keep is not None:
        size = max(len(np.unique(labels)), round(keep * len(rows)))
        kept = reduction.coreset(rows, labels, size, seed=seed)
        rows, labels = rows[kept], labels[kept]
    built = gallery.directions(rows, labels, classes)
    return Spatial(mean, axes, np.array(window), classes=np.array(classes), **built._asdict())


def _rows(
    mean: Float[ArrayLike, "h w f"],
    axes: Float[ArrayLike, "f m"],
    window: float,
    maps: Shaped[ArrayLike, "n h w f"],
) -> Any:
    """Centres, crops, projects and flattens maps."""
    pixels = central(maps, window) - central(mean, window)[None]
    if axes.shape[1]:
        flat = pixels.astype(np.float32).reshape(-1, axes.shape[0])
        pixels = gallery.dot(flat, axes.astype(np.float32).T)
    return pixels.reshape(maps.shape[0], -1)


def directions(model: Spatial, maps: Shaped[np.ndarray, "n h w f"]) -> Float[np.ndarray, "n d"]:
    """Computes the unit vectors by which maps are compared."""
    mean, axes, window = (np.asarray(array) for array in model[:3])
    return gallery.unit(_rows(mean, axes, float(window), maps))


def answer(
    model: Spatial, maps: Shaped[ArrayLike, "b h w f"], *, block_size: int = gallery.BLOCK
) -> Answer:
    """Computes the largest cosine to a training example, and the example's class.

    The distances are one minus the cosine.

    Args:
      block_size: number of maps per block.
    """
    model = gallery.ready(model)
    searched, classes = gallery.of(model), int(model.classes)

    def cosines(block: Any) -> Any:
        rows = _rows(model.mean, model.axes, float(model.window), block)
        return gallery.cosines(searched, rows, classes, block_size=block_size)

    return _of_cosines(gallery.in_blocks(cosines, maps, block_size))


def _of_cosines(cosines: Any) -> Answer:
    distances = gallery.numpy_of(cosines).maximum(1 - cosines, 0)  # a cosine may round above 1
    return Answer(cosines.max(axis=1), cosines.argmax(axis=1), distances)


def spatial(name: str, title: str, need: str, **options: Any) -> Score:
    """Creates a score that compares the maps of one stage.

    Without ``channels`` or ``most_bytes``, its gallery is limited to :data:`MOST_BYTES` per example
    and to :data:`MOST_OF_ALL` in total.

    Args:
      need: name of the map, such as ``"map_stage2"``.
      **options: options of :func:`fit`.
    """
    bounded = not {"channels", "most_bytes"} & set(options)

    def fit_to(maps: np.ndarray, labels: np.ndarray, classes: int) -> Spatial:
        own = dict(options)
        if bounded:
            examples = max(1, min(len(maps), own.get("most", MOST)))
            own["most_bytes"] = min(MOST_BYTES, MOST_OF_ALL // examples)
        return fit(maps, labels, classes, **own)

    return Score.of_arrays(
        name,
        title,
        answer,
        fit_to,
        arrays={"maps": need},
        traced=answer,
        shapes=("window", "labels", "classes"),
        names_class=True,
        recorded=False,
        model=Spatial,
        comparing=Comparing(directions, gallery.with_examples),
    )


PARTS = (
    *(spatial(f"spatial_stage{i}", f"map of stage {i}", f"map_stage{i}") for i in STAGES),
    spatial("spatial_stage2_centre", "centre of stage 2", "map_stage2", window=0.75),
)
