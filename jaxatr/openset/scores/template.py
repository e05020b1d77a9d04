r"""Ratio of the two best classes' distances by correlation with their chips, without a training.

The square root of the amplitude, averaged over cells of 2 by 2 pixels, is compared with that of
every training chip at shifts of up to 3 pixels either way, in three windows about the middle: all
of the chip, three quarters and half of its sides. The correlation r is the windows' mean
at one shift. With the largest r to a chip of a class, :math:`d = 1 - r` is the distance to the
class, the nearest class is the answer, and the score is :math:`\log(d_2 / d_1)` of the two
nearest. Template matching is radar's classical recogniser (Novak et al. 1997, "Performance of a
high-resolution polarimetric SAR ATR system"); the ratio is that of
:mod:`~jaxatr.openset.scores.nndr`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxatr.openset import gallery
from jaxatr.openset.gallery import Gallery
from jaxatr.openset.inputs import known_labels
from jaxatr.openset.maps import central, mean_pool
from jaxatr.openset.outputs import Outputs
from jaxatr.openset.score import Answer, Score
from jaxatr.typing import ArrayLike, Float, Int, Shaped

SHIFT = 3
"""Pixels that a chip is moved by at most."""

WINDOWS = (1.0, 0.75, 0.5)
"""Shares of a chip's sides. Those below 1 weigh the middle, where the target is, more than clutter.

They were chosen on MSTAR's known classes, held out of short trainings."""

CELLS = 32
"""Cells of the larger side of a chip at most; those of a chip above 64 pixels are larger than 2."""

MOST = 4_000
"""Training chips that are compared at most, which bounds the time of an evaluation."""


class Template(NamedTuple):
    """A fitted model.

    Attributes:
      examples: ``[n, d]``, as :class:`~jaxatr.openset.gallery.Gallery` has it: the windows of the
        training chips without a margin of ``shift`` pixels, each of mean 0, all of equal length.
      half_squares: ``[n]``, as there.
      labels: ``[n]``, as there.
      classes: ``[]``, k.
      shift: ``[]``, pixels that a chip is moved by at most.
      windows: ``[w]``, shares of a chip's sides. Models from before there were any have one, 1.0.
    """

    examples: Shaped[ArrayLike, "n d"]
    half_squares: Float[ArrayLike, " n"]
    labels: Int[ArrayLike, " n"]
    classes: Int[ArrayLike, ""]
    shift: Int[ArrayLike, ""]
    windows: Float[ArrayLike, " w"] = np.ones(1)


def fit(
    chips: Shaped[np.ndarray, "n h w c"],
    labels: Int[ArrayLike, " n"],
    classes: int,
    *,
    shift: int = SHIFT,
    windows: Sequence[float] = WINDOWS,
    most: int = MOST,
    seed: int = 0,
) -> Template:
    """Keeps the middle of the training chips; a chip of one grey has none to compare.

    Args:
      chips: ``[n, h, w, c]``, training chips in their raw units; below 0 counts as 0.
      labels: ``[n]``, their classes.
      classes: k, all of them.
      shift: pixels that a chip is moved by at most.
      windows: shares of a chip's sides, in (0, 1].
      most: chips at most; of more, a random part is taken, evenly from all classes.
      seed: of that draw.

    Raises:
      ValueError: a value is not finite, a label is of no known class, all are of one class, or the
        chips are too small to be moved so far.
    """
    labels = known_labels(labels, len(chips), classes)
    chosen = gallery.sample(labels, most, seed=seed)
    smallest = min(chips.shape[1:3])
    if not 0 <= shift <= (smallest - 4) / 2:
        raise ValueError(
            f"shift: got {shift}, wanted 0 or more, and 2 by 2 cells left of {smallest} pixels"
        )
    if not windows:
        raise ValueError("windows: got none, wanted one or more")
    rows = _windows(_cut(amplitudes(chips[chosen]), shift, shift, shift), windows)
    found = gallery.directions(rows, labels[chosen], classes)
    return Template(*found, np.array(classes), np.array(shift), np.array(windows))


def amplitudes(chips: Shaped[ArrayLike, "n h w c"]) -> Any:
    """Takes the square root of chips, in float32."""
    xp = gallery.numpy_of(chips)
    return xp.sqrt(xp.maximum(chips.astype(np.float32), 0))


def _cut(roots: Shaped[np.ndarray, "n h w c"], top: int, left: int, shift: int) -> np.ndarray:
    """Cuts a part ``2 * shift`` smaller than the chip."""
    rows, columns = (side - 2 * shift for side in roots.shape[1:3])
    return roots[:, top : top + rows, left : left + columns]


def _windows(part: Any, windows: Sequence[float]) -> Any:
    """Averages the cells of a part's windows, ``[n, h, w, c]`` to ``[n, d]``.

    Each window has mean 0 and length 1 where it is not of one grey, so that the product of two
    rows is the sum of their windows' correlations.
    """
    size = max(2, -(-max(part.shape[1:3]) // CELLS))
    found = []
    for window in windows:
        cut = central(part, window)
        cells = mean_pool(cut, min(size, *cut.shape[1:3])).reshape(part.shape[0], -1)
        cells = cells - cells.mean(axis=1, keepdims=True)
        found.append(gallery.unit(cells))
    return gallery.numpy_of(part).concatenate(found, axis=1)


def answer(
    model: Template, chips: Shaped[np.ndarray, "b h w c"], *, block_size: int = gallery.BLOCK
) -> Answer:
    """Compares chips with all training chips at all shifts.

    Args:
      model: of :func:`fit`.
      chips: ``[b, h, w, c]``, in the units of the training chips.
      block_size: chips at a time.
    """
    classes, shift = int(np.asarray(model.classes)), int(np.asarray(model.shift))
    windows = np.asarray(model.windows).tolist()
    searched = gallery.ready(Gallery(model.examples, model.half_squares, model.labels))
    found = [np.zeros((0, classes))]
    for start in range(0, len(chips), block_size):
        roots = amplitudes(chips[start : start + block_size])
        best = np.full((len(roots), classes), -np.inf)
        for top in range(2 * shift + 1):
            for left in range(2 * shift + 1):
                rows = _windows(_cut(roots, top, left, shift), windows)
                np.maximum(best, gallery.cosines(searched, rows, classes), out=best)
        found.append(best)
    return _of_cosines(np.concatenate(found))


def _traced(model: Template, outputs: Outputs) -> Answer:
    """Computes :func:`answer` for a graph: all shifts of a chip at once, in one product."""
    classes, shift, windows = int(model.classes), int(model.shift), model.windows.tolist()
    searched = Gallery(model.examples, model.half_squares, model.labels)
    parts = amplitudes(jnp.asarray(outputs.more["image"]))
    moves = np.arange(2 * shift + 1)[:, None]
    for axis, side in ((1, parts.shape[1]), (3, parts.shape[2])):
        parts = jnp.take(parts, moves + np.arange(side - 2 * shift), axis=axis)
    parts = jnp.transpose(parts, (1, 3, 0, 2, 4, 5))  # [up, left, n, h, w, c]
    rows = _windows(parts.reshape(-1, *parts.shape[3:]), windows)
    cosines = gallery.traced_cosines(searched, rows, classes)
    return _of_cosines(jnp.max(cosines.reshape(len(moves) ** 2, -1, classes), axis=0))


def _of_cosines(cosines: Any) -> Answer:
    xp = gallery.numpy_of(cosines)
    distances = xp.maximum(1 - cosines, gallery.LEAST)
    nearest, other = gallery.two_nearest(distances)
    return Answer(xp.log(other / nearest), distances.argmin(axis=1), distances)


SCORE = Score(
    name="template",
    title="template",
    score=lambda model, out: answer(model, out.more["image"]),
    fit=lambda out, _: fit(out.more["image"], out.labels, out.logits.shape[1]),
    traced=_traced,
    shapes=("labels", "classes", "shift", "windows"),
    needs=("image",),
    names_class=True,
    recorded=False,
    model=Template,
)
