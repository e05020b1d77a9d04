"""Reductions of a gallery: projections to fewer dimensions, samples and coresets of examples."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxatr.typing import Float, Int, Shaped


class Projection(NamedTuple):
    """A linear map to fewer dimensions, ``(x - mean) @ axes``.

    Attributes:
      mean: ``[d]``.
      axes: ``[d, m]``.
    """

    mean: Float[np.ndarray, " d"]
    axes: Float[np.ndarray, "d m"]

    def __call__(self, x: Shaped[np.ndarray, "... d"]) -> Float[np.ndarray, "... m"]:
        """Projects the last axis, in float32."""
        x, mean, axes = (np.asarray(array, np.float32) for array in (x, self.mean, self.axes))
        return (x - mean) @ axes


def pca(rows: Shaped[np.ndarray, "n d"], dimensions: int) -> Projection:
    """Computes the principal directions of rows, in which they vary most.

    Args:
      rows: ``[n, d]``.
      dimensions: m, number of directions.

    Raises:
      ValueError: ``dimensions`` is out of range.
    """
    _check_dimensions(dimensions, rows)
    mean = rows.mean(axis=0, dtype=np.float64)
    centred = np.asarray(rows, np.float64) - mean
    _, vectors = np.linalg.eigh(centred.T @ centred)  # ascending
    return Projection(mean, vectors[:, ::-1][:, :dimensions])


def random_projection(rows: Shaped[np.ndarray, "n d"], dimensions: int, *, seed: int) -> Projection:
    """Draws a random projection (Johnson and Lindenstrauss 1984).

    It preserves squared distances in expectation.

    Args:
      rows: ``[n, d]``; only the width d is used.
      dimensions: m, number of directions.
      seed: seed of the directions.

    Raises:
      ValueError: ``dimensions`` is out of range.
    """
    width = _check_dimensions(dimensions, rows)
    axes = np.random.default_rng(seed).normal(size=(width, dimensions)) / np.sqrt(dimensions)
    return Projection(np.zeros(width), axes)


def _check_dimensions(dimensions: int, rows: np.ndarray) -> int:
    if not 1 <= dimensions <= rows.shape[1]:
        raise ValueError(
            f"dimensions: got {dimensions}, wanted 1 to {rows.shape[1]}, the rows' width"
        )
    return rows.shape[1]


def sample(labels: Int[np.ndarray, " n"], most: int, *, seed: int = 0) -> Int[np.ndarray, " m"]:
    """Draws a random sample of examples, balanced over the classes.

    Args:
      labels: ``[n]``, the examples' classes.
      most: largest number of examples; at least one of each class is drawn regardless.
      seed: seed of the sample.

    Returns:
      ``[m]``, the examples' indices in ascending order; all of them if n is at most ``most``.
    """
    if len(labels) <= most:
        return np.arange(len(labels))
    order = np.random.default_rng(seed).permutation(len(labels))
    rank = np.empty(len(labels), int)  # of each example within its class, in the random order
    for label in np.unique(labels):
        own = order[labels[order] == label]
        rank[own] = np.arange(len(own))
    kept = np.lexsort((order.argsort(), rank))[: max(most, len(np.unique(labels)))]
    return np.sort(kept)


def coreset(
    rows: Shaped[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    size: int,
    *,
    dimensions: int = 128,
    seed: int = 0,
) -> Int[np.ndarray, " m"]:
    """Chooses a coreset: few examples, such that every other one is close to one of them.

    The method is greedy k-centre, as in PatchCore (Roth et al. 2022, algorithm 1): each step adds
    the example that is farthest from those chosen so far, by the distances of random projections.
    The first choices are, for each class, the example nearest to its mean.

    Args:
      rows: ``[n, d]``.
      labels: ``[n]``, their classes.
      size: m, at least the number of classes.
      dimensions: number of dimensions of the projections; rows with no more are not projected.
      seed: seed of the projection.

    Returns:
      ``[m]``, the chosen examples' indices in ascending order.

    Raises:
      ValueError: ``size`` is out of range.
    """
    names = np.unique(labels)
    if not len(names) <= size <= len(rows):
        raise ValueError(f"size: got {size}, wanted {len(names)} (the classes) to {len(rows)}")
    points = np.asarray(rows, np.float32)
    if rows.shape[1] > dimensions:
        points = random_projection(rows, dimensions, seed=seed)(rows)
    chosen = []
    for name in names:
        own = np.flatnonzero(labels == name)
        mean = points[own].mean(axis=0)
        chosen.append(int(own[np.argmin(np.square(points[own] - mean).sum(axis=1))]))
    return np.sort(farthest_first(points, size, chosen=chosen))


def farthest_first(
    points: Float[np.ndarray, "n d"],
    size: int,
    *,
    chosen: Sequence[int] = (),
    away: Float[np.ndarray, " n"] | None = None,
) -> Int[np.ndarray, " m"]:
    """Chooses points one after another, each the farthest from all before it (greedy k-centre).

    Of points equally far the first is taken, and none is taken twice.

    Args:
      points: ``[n, d]``.
      size: m, number of points to choose, at most n.
      chosen: the first of them.
      away: ``[n]``, squared distances to what is there before the first choice; by default nothing.

    Returns:
      ``[m]``, indices in the order in which they are chosen.
    """
    away = np.full(len(points), np.inf) if away is None else np.array(away, np.float64)
    order: list[int] = []
    for place in range(size):
        index = int(chosen[place]) if place < len(chosen) else int(np.argmax(away))
        order.append(index)
        away = np.minimum(away, np.square(points - points[index]).sum(axis=1))
        away[order] = -1  # never chosen twice
    return np.array(order, int)
