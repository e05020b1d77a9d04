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

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.openset import gallery, reduction
from jaxatr.openset.elsewhere import Elsewhere
from jaxatr.openset.gallery import Gallery
from jaxatr.openset.inputs import known_labels
from jaxatr.openset.outputs import Outputs
from jaxatr.openset.reranking import Index
from jaxatr.openset.score import Answer, Comparing, Score
from jaxatr.typing import Array, ArrayLike, Float, Int, Shaped

SHIFT = 3
"""Pixels that a chip is moved by at most."""

WINDOWS = (1.0, 0.75, 0.5)
"""Shares of a chip's sides. Those below 1 weigh the middle, where the target is, more than clutter.

They were chosen on MSTAR's known classes, held out of short trainings."""

CELLS = 32
"""Cells of the larger side of a chip at most; those of a chip above 64 pixels are larger than 2."""

BLOCK = 64
"""Chips that are compared at a time, each in all its shifts."""

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
      index: as there.
    """

    examples: Shaped[ArrayLike, "n d"]
    half_squares: Float[ArrayLike, " n"]
    labels: Int[ArrayLike, " n"]
    classes: Int[ArrayLike, ""]
    shift: Int[ArrayLike, ""]
    windows: Float[ArrayLike, " w"] = np.ones(1)
    index: Index | Elsewhere | None = None

    @property
    def forms(self) -> int:
        """Shifts of a chip."""
        return (2 * int(np.asarray(self.shift)) + 1) ** 2


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
    chosen = reduction.sample(labels, most, seed=seed)
    smallest = min(chips.shape[1:3])
    if not 0 <= shift <= (smallest - 4) / 2:
        raise ValueError(
            f"shift: got {shift}, wanted 0 or more, and 2 by 2 cells left of {smallest} pixels"
        )
    if not windows:
        raise ValueError("windows: got none, wanted one or more")
    rows = _rows(amplitudes(chips[chosen]), ((shift, shift),), shift, tuple(windows))[:, 0]
    found = gallery.directions(np.asarray(rows), labels[chosen], classes)
    shares = np.array(tuple(windows))
    return Template(
        classes=np.array(classes), shift=np.array(shift), windows=shares, **found._asdict()
    )


def amplitudes(chips: Shaped[ArrayLike, "n h w c"]) -> Any:
    """Takes the square root of chips, in float32."""
    xp = gallery.numpy_of(chips)
    return xp.sqrt(xp.maximum(chips.astype(np.float32), 0))


@functools.partial(jax.jit, static_argnames=("moves", "shift", "windows"))
def _rows(
    roots: Float[ArrayLike, "b h w c"],
    moves: tuple[tuple[int, int], ...],
    shift: int,
    windows: tuple[float, ...],
) -> Float[Array, "b s d"]:
    """Cuts parts ``2 * shift`` smaller than the chip, and averages the cells of their windows.

    Each window has mean 0 and length 1 where it is not of one grey, so that the product of two
    rows is the sum of their windows' correlations.

    Args:
      roots: ``[b, h, w, c]``.
      moves: of the parts, first row and column.
      shift: pixels on each side by which the parts are smaller.
      windows: shares of a part's sides.
    """
    roots = jnp.asarray(roots)
    sides = [side - 2 * shift for side in roots.shape[1:3]]
    found = []
    for window in windows:
        kept = [max(1, round(window * side)) for side in sides]
        size = min(max(2, -(-max(sides) // CELLS)), *kept)
        first = [(side - of) // 2 for side, of in zip(sides, kept, strict=True)]
        height, width = (side - size + 1 for side in roots.shape[1:3])
        parts = [
            roots[:, top : top + height, left : left + width]
            for top, left in itertools.product(range(size), repeat=2)
        ]
        means = functools.reduce(operator.add, parts) / size**2
        cut = []
        for move in moves:
            rows, columns = (
                slice(start + by, start + by + of // size * size, size)
                for start, by, of in zip(first, move, kept, strict=True)
            )
            cut.append(means[:, rows, columns].reshape(roots.shape[0], -1))
        cells = jnp.stack(cut, axis=1)
        found.append(gallery.unit(cells - cells.mean(axis=2, keepdims=True)))
    return jnp.concatenate(found, axis=2)


def answer(
    model: Template, chips: Shaped[np.ndarray, "b h w c"], *, block_size: int = BLOCK
) -> Answer:
    """Compares chips with all training chips at all shifts.

    Where there are many, every second shift either way tells which of them are compared at all.

    Args:
      model: of :func:`fit`.
      chips: ``[b, h, w, c]``, in the units of the training chips.
      block_size: chips at a time.
    """
    model = gallery.ready(model)
    searched = Gallery(model.examples, model.half_squares, model.labels, model.index)
    classes, shift = int(np.asarray(model.classes)), int(np.asarray(model.shift))
    windows = tuple(np.asarray(model.windows).tolist())
    moves, coarse = _moves(shift)
    found = [np.zeros((0, classes))]
    for start in range(0, len(chips), block_size):
        block = amplitudes(chips[start : start + block_size])
        filled = np.pad(
            block, [(0, (1 << (len(block) - 1).bit_length()) - len(block)), *[(0, 0)] * 3]
        )
        rows = _rows(filled, moves, shift, windows)
        found.append(gallery.cosines(searched, rows, classes, estimated=coarse)[: len(block)])
    return _of_cosines(np.concatenate(found))


def _moves(shift: int) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
    """Lists all shifts, and the places of every second one either way."""
    sides = range(2 * shift + 1)
    moves = tuple((top, left) for top in sides for left in sides)
    coarse = tuple(i for i, (top, left) in enumerate(moves) if top % 2 == left % 2 == 0)
    return moves, coarse


def _traced(model: Template, outputs: Outputs) -> Answer:
    """Computes :func:`answer` for a graph: all shifts of a chip at once."""
    classes, shift, windows = int(model.classes), int(model.shift), tuple(model.windows.tolist())
    searched = Gallery(model.examples, model.half_squares, model.labels, model.index)
    moves, coarse = _moves(shift)
    rows = _rows(amplitudes(jnp.asarray(outputs.more["image"])), moves, shift, windows)
    return _of_cosines(gallery.traced_cosines(searched, rows, classes, coarse))


def _of_cosines(cosines: Any) -> Answer:
    xp = gallery.numpy_of(cosines)
    distances = xp.maximum(1 - cosines, gallery.LEAST)
    nearest, other = gallery.two_nearest(distances)
    return Answer(xp.log(other / nearest), distances.argmin(axis=1), distances)


def _unmoved(model: Template, outputs: Outputs) -> Float[np.ndarray, "n d"]:
    """Lays chips out as the examples are."""
    shift, windows = int(np.asarray(model.shift)), tuple(np.asarray(model.windows).tolist())
    roots = amplitudes(outputs.more["image"])
    return np.asarray(gallery.unit(_rows(roots, ((shift, shift),), shift, windows)[:, 0]))


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
    comparing=Comparing(_unmoved, gallery.with_examples),
)
