"""Batches padded to a few sizes, so that few programs are compiled."""

import itertools
from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np

_GROWTH = 4
T = TypeVar("T")


def filled_size(count: int, most: int | None = None) -> int:
    """Returns the size that a batch is padded to, one of a few, so that few programs are compiled.

    Args:
      count: number of examples in the batch.
      most: size of a full batch; None for no limit.

    >>> [filled_size(count, 32) for count in (1, 2, 4, 5, 17, 32)]
    [1, 4, 4, 16, 32, 32]
    """
    size = 1
    while size < count:
        size *= _GROWTH
    return size if most is None else min(size, most)


def filled_batches(
    examples: Iterable[T], size: int, *, full: bool = False
) -> Iterator[tuple[list[T], int]]:
    """Yields batches of examples, each with the number of its examples before padding.

    The last batch is padded with copies of its last example: to the size of the earlier batches,
    or to :func:`filled_size` if it is the only one. Few programs are therefore compiled, and a
    single example is computed alone.

    Args:
      examples: the examples, read one batch at a time.
      size: size of a full batch.
      full: whether the only batch is padded to the full size too, for a process that computes many
        numbers of examples.

    Raises:
      ValueError: ``size`` is below 1.

    >>> list(filled_batches("abcde", 3))
    [(['a', 'b', 'c'], 3), (['d', 'e', 'e'], 2)]
    """
    if size < 1:
        raise ValueError(f"batch_size: got {size}, wanted at least 1")
    remaining = iter(examples)
    while batch := list(itertools.islice(remaining, size)):
        target = size if full else filled_size(len(batch), size)
        yield batch + [batch[-1]] * (target - len(batch)), len(batch)
        full = True


def stacked_batches(
    chips: Iterable[np.ndarray], size: int, *, full: bool = False
) -> Iterator[tuple[np.ndarray, int]]:
    """Yields :func:`filled_batches` of arrays of one shape as arrays ``[b, ...]``.

    Each array is copied before the next is read, so that all may be read into one buffer.
    """
    for batch, count in filled_batches(map(np.array, chips), size, full=full):
        yield np.stack(batch), count
