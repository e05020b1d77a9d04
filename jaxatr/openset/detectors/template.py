r"""Ratio of the two nearest classes' distances by template correlation, without training.

Chips are compared by the square root of their amplitude, averaged over cells of 2 by 2 pixels. Each
chip is correlated with every training chip at shifts of up to 3 pixels in either direction, in
three centred windows, which have the full, three quarters and half of the chip's sides. The
correlation at a shift is the mean over the windows. With r the largest correlation to a chip of a
class, the distance to the class is :math:`d = 1 - r`. The nearest class is predicted, and the score
is :math:`\log(d_2 / d_1)` of the two nearest classes.

Template matching is the classical method of radar target recognition (Novak et al. 1997,
"Performance of a high-resolution polarimetric SAR ATR system"); the ratio is that of
:mod:`~jaxatr.openset.detectors.nndr`.
"""

import functools
import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.openset import gallery
from jaxatr.openset.gallery import Index, Remote, reduction
from jaxatr.openset.gallery.maps import gray, is_gray
from jaxatr.openset.inputs import known_labels
from jaxatr.openset.score import Answer, Comparing, Score
from jaxatr.typing import Array, ArrayLike, Float, Int, Shaped

SHIFT = 3
"""Largest shift in pixels."""

WINDOWS = (1.0, 0.75, 0.5)
"""Sides of the windows, relative to the chip's. Windows below 1 give the centre, where the target
is, more weight than the clutter.

They were chosen on known classes of MSTAR that were held out of short trainings."""

CELLS = 32
"""Largest number of cells per side; chips above 64 pixels have cells larger than 2."""

BLOCK = 64
"""Number of chips per block, each in all its shifts."""

MOST = 4_000
"""Largest number of training chips, which bounds the time of an evaluation."""


class Template(NamedTuple):
    """A fitted model.

    Attributes:
      examples: ``[n, d]``, the examples of the :class:`~jaxatr.openset.gallery.Gallery`: the
        training chips without a margin of ``shift`` pixels, as windows with mean 0 and equal norm.
      half_squares, labels, index: the rest of the gallery.
      classes: ``[]``, k.
      shift: ``[]``, largest shift in pixels.
      windows: ``[w]``, sides of the windows, relative to the chip's. Models of earlier versions
        have a single window, 1.0.
    """

    examples: Shaped[ArrayLike, "n d"]
    half_squares: Float[ArrayLike, " n"]
    labels: Int[ArrayLike, " n"]
    classes: Int[ArrayLike, ""]
    shift: Int[ArrayLike, ""]
    windows: Float[ArrayLike, " w"] = np.ones(1)
    index: Index | Remote | None = None

    @property
    def forms(self) -> int:
        """Number of shifts of a chip."""
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
    """Builds a gallery of the training chips without their margins; constant chips are left out.

    If the channels of all chips are equal, one is kept.

    Args:
      chips: ``[n, h, w, c]``, training chips in their raw units; negative values count as 0.
      classes: k, number of classes.
      shift: largest shift in pixels.
      windows: sides of the windows, relative to the chip's, in (0, 1].
      most: largest number of chips; if there are more, a random sample is drawn, balanced over
        classes.
      seed: seed of the sample.

    Raises:
      ValueError: a value is not finite, a label is not a known class, all chips are of one class,
        the chips are too small for the shift, or there are no windows.
    """
    labels = known_labels(labels, len(chips), classes)
    chosen = reduction.sample(labels, most, seed=seed)
    smallest = min(chips.shape[1:3])
    if not 0 <= shift <= (smallest - 4) / 2:
        raise ValueError(
            f"shift: got {shift}, wanted 0 or more, with 2 by 2 cells left of {smallest} pixels"
        )
    if not windows:
        raise ValueError("windows: got none, wanted one or more")
    chips = chips[chosen]
    chips = gray(chips) if is_gray(chips) else chips
    rows = _unmoved_rows(chips, shift, tuple(windows))
    built = gallery.directions(rows, labels[chosen], classes)
    shares = np.array(tuple(windows))
    return Template(
        classes=np.array(classes), shift=np.array(shift), windows=shares, **built._asdict()
    )


def amplitudes(chips: Shaped[ArrayLike, "n h w c"]) -> Any:
    """Computes the square root of chips, in float32; negative values count as 0."""
    xp = gallery.numpy_of(chips)
    return xp.sqrt(xp.maximum(chips.astype(np.float32), 0))


@functools.partial(jax.jit, static_argnames=("moves", "shift", "windows"))
def _rows(
    roots: Float[ArrayLike, "b h w c"],
    moves: tuple[int, ...],
    shift: int,
    windows: tuple[float, ...],
) -> Float[Array, "b s d"]:
    """Crops parts that are ``2 * shift`` smaller than the chip, and averages their windows' cells.

    Unless it is constant, each window has mean 0 and the length of the others, and the row has
    length 1, so that the product of two rows is the mean of their windows' correlations.

    Args:
      roots: ``[b, h, w, c]``.
      moves: first rows of the parts, and first columns; there is a part for each pair.
      shift: width of the margin in pixels.
      windows: sides of the windows, relative to the part's.
    """
    roots = jnp.asarray(roots)
    sides = [side - 2 * shift for side in roots.shape[1:3]]
    found, lengths = [], []
    for size, *kept in _cells(sides, windows):
        first = [(side - of) // 2 for side, of in zip(sides, kept, strict=True)]
        height, width = (side - size + 1 for side in roots.shape[1:3])
        parts = [
            roots[:, top : top + height, left : left + width]
            for top, left in itertools.product(range(size), repeat=2)
        ]
        means = functools.reduce(operator.add, parts) / size**2
        down, across = (
            [slice(by + start, by + start + of - of % size, size) for by in moves]
            for start, of in zip(first, kept, strict=True)
        )
        # A slice for each part would be slow to compile, and a gather of pixels slow to run: XLA
        # would gather again in each of the passes below. Rows are cut out last, as wholes.
        columns = jnp.stack([means[:, :, places] for places in across], axis=1)
        cells = jnp.stack([columns[:, :, places] for places in down], axis=1)
        cells = cells.reshape(roots.shape[0], len(moves) ** 2, -1)
        cells -= cells[:, :, :1]  # so that a constant window is exactly 0; its mean is rounded
        cells -= cells.mean(axis=2, keepdims=True)
        largest = jnp.abs(cells).max(axis=2, keepdims=True)
        cells /= jnp.where(largest > 0, largest, 1)  # so that squares neither overflow nor vanish
        found.append(cells)
        lengths.append(jnp.linalg.norm(cells, axis=2, keepdims=True))
    varied = functools.reduce(operator.add, [(length > 0).astype(int) for length in lengths])
    one = 1 / jnp.sqrt(jnp.maximum(varied, 1).astype(np.float32))  # length of each window
    scaled = [
        cells * (one / jnp.where(length > 0, length, 1))
        for cells, length in zip(found, lengths, strict=True)
    ]
    return jnp.concatenate(scaled, axis=2)


def _cells(sides: Sequence[int], windows: Sequence[float]) -> Iterator[tuple[int, int, int]]:
    """Yields the side of each window's cells, and its rows and columns in pixels."""
    for window in windows:
        height, width = (max(1, round(window * side)) for side in sides)
        yield min(max(2, -(-max(sides) // CELLS)), height, width), height, width


def _in_form(model: Template, chips: Shaped[ArrayLike, "b h w c"]) -> Any:
    """Averages the channels of chips if the examples have one."""
    sides = [side - 2 * int(np.asarray(model.shift)) for side in chips.shape[1:3]]
    windows = np.asarray(model.windows).tolist()
    cells = sum((height // of) * (width // of) for of, height, width in _cells(sides, windows))
    one = np.shape(model.examples)[1] == cells and chips.shape[-1] > 1
    return gray(chips) if one else chips


def answer(
    model: Template, chips: Shaped[ArrayLike, "b h w c"], *, block_size: int = BLOCK
) -> Answer:
    """Compares chips with the training chips at all shifts.

    For a large gallery, only every second shift in either direction is used to select the training
    chips that are then compared at all shifts.

    Args:
      block_size: number of chips per block.
    """
    model = gallery.ready(model)
    searched, classes, shift = gallery.of(model), int(model.classes), int(model.shift)
    windows = tuple(np.asarray(model.windows).tolist())
    moves, coarse = _moves(shift)

    def cosines(block: Any) -> Any:
        rows = _rows(amplitudes(_in_form(model, block)), moves, shift, windows)
        return gallery.unit_cosines(searched, rows, classes, coarse, block_size)

    return _of_cosines(gallery.in_blocks(cosines, chips, block_size))


def _moves(shift: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Lists the shifts in one direction, and the indices of those pairs that are even in both."""
    moves = tuple(range(2 * shift + 1))
    pairs = enumerate(itertools.product(moves, repeat=2))
    return moves, tuple(i for i, (top, left) in pairs if top % 2 == left % 2 == 0)


def _of_cosines(cosines: Any) -> Answer:
    xp = gallery.numpy_of(cosines)
    distances = xp.maximum(1 - cosines, gallery.LEAST)
    nearest, other = gallery.two_nearest(distances)
    return Answer(xp.log(other / nearest), distances.argmin(axis=1), distances)


def _unmoved(model: Template, chips: Shaped[ArrayLike, "n h w c"]) -> Float[np.ndarray, "n d"]:
    """Converts chips to the form of the gallery's examples."""
    shift, windows = int(np.asarray(model.shift)), tuple(np.asarray(model.windows).tolist())
    return np.asarray(gallery.unit(_unmoved_rows(_in_form(model, chips), shift, windows)))


def _unmoved_rows(
    chips: Shaped[ArrayLike, "n h w c"], shift: int, windows: tuple[float, ...]
) -> Float[np.ndarray, "n d"]:
    """Returns the rows of chips that are not shifted.

    In blocks, because folds of the same chips would each be a program of their own.
    """

    def rows(block: Any) -> Any:
        return _rows(amplitudes(block), (shift,), shift, windows)

    return gallery.in_blocks(rows, chips, BLOCK)[:, 0]


PART = Score.of_arrays(
    "template",
    "template",
    answer,
    fit,
    arrays={"chips": "image"},
    traced=answer,
    shapes=("labels", "classes", "shift", "windows"),
    names_class=True,
    recorded=False,
    model=Template,
    comparing=Comparing(_unmoved, gallery.with_examples),
)
