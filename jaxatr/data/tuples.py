"""Batches of related examples: tuples, and several examples per class."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jaxatr.data.chip import Chip
from jaxatr.data.dataset import Split
from jaxatr.data.pipeline import (
    Batch,
    BatchIterator,
    EvalBatches,
    Reader,
    process_share,
    read_ahead,
)
from jaxatr.typing import Int, Shaped

_FOR_EVER = 2**31 - 1  # batches


def tuple_batches(
    split: Split,
    indices: Int[np.ndarray, " n"],
    labels: Int[np.ndarray, " n"],
    members: Int[np.ndarray, "r m"],
    *,
    chip: Chip,
    batch_size: int,
    seed: int,
    columns: Mapping[str, Shaped[np.ndarray, " r"]] | None = None,
    start: int = 0,
    process_index: int = 0,
    process_count: int = 1,
    threads: int = 2,
) -> BatchIterator:
    """Returns an endless iterator over this process's share of batches of tuples.

    A stream passes over the tuples again and again, in a new order each time. With ``start``, the
    same stream is continued with other members.

    Args:
      split: the split to read from.
      indices: ``[n]``, numbers of the training examples.
      labels: ``[n]``, their labels.
      members: ``[r, m]``, positions in ``indices`` of each tuple's members.
      chip: the geometry; all chips must have one shape.
      batch_size: tuples per batch over all processes.
      seed: seed of the order.
      columns: further values of each tuple, which are added to the batch.
      start: the number of batches of the stream to skip.
      process_index: this process's number.
      process_count: the number of processes.
      threads: number of threads that read ahead.

    Returns:
      Batches of ``image [b, m, h, w, c]``, ``label`` and ``id`` int32 ``[b, m]``, ``draw`` and
      ``epoch`` int32 ``[b]`` (the tuple's place in the stream and the number of completed passes),
      and ``columns``; with ``get_state`` and ``set_state``.

    Raises:
      ValueError: the batch size is not divisible by the processes, or the chips differ in shape.
    """
    import grain

    read = _tuple_reader(Reader(split, indices, labels, chip), members, columns)
    mine = process_share(batch_size, process_index, process_count)

    def make(number: int) -> Batch:
        drawn: Any = stream[number]
        place, position = (column[mine] for column in drawn)
        draw = place.astype(np.int32)
        return {**read(position), "draw": draw, "epoch": draw // np.int32(len(members))}

    order = grain.MapDataset.range(len(members)).seed(seed).shuffle().repeat()
    stream = order.map_with_index(lambda place, position: (place, position)).batch(batch_size)
    return _endless(make, start, threads)


def eval_tuple_batches(
    split: Split,
    indices: Int[np.ndarray, " n"],
    labels: Int[np.ndarray, " n"],
    members: Int[np.ndarray, "r m"],
    *,
    chip: Chip,
    batch_size: int,
    columns: Mapping[str, Shaped[np.ndarray, " r"]] | None = None,
) -> EvalBatches:
    """Returns a re-iterable over batches of the tuples in the given order.

    Batches are those of :func:`tuple_batches` without ``draw`` and ``epoch`` and with ``mask``,
    bool ``[b]``: the last batch is padded with repeats of the last tuple, whose mask is False.

    Args:
      split: the split to read from.
      indices: ``[n]``, numbers of the examples.
      labels: ``[n]``, their labels.
      members: ``[r, m]``, positions in ``indices`` of each tuple's members.
      chip: the geometry; all chips must have one shape.
      batch_size: tuples per batch.
      columns: further values of each tuple, which are added to the batch.

    Raises:
      ValueError: the chips differ in shape.
    """
    read = _tuple_reader(Reader(split, indices, labels, chip), members, columns)
    return EvalBatches(read, len(members), batch_size)


def _tuple_reader(
    read: Reader, members: np.ndarray, columns: Mapping[str, np.ndarray] | None
) -> Callable[[np.ndarray], dict[str, Any]]:
    """Returns a function that reads tuples by their numbers."""
    columns = dict(columns or {})

    def rows(numbers: np.ndarray) -> dict[str, Any]:
        tuples = members[numbers]
        found = read(tuples.reshape(-1))
        own = {name: values[numbers] for name, values in columns.items()}
        return own | {
            name: values.reshape(*tuples.shape, *values.shape[1:]) for name, values in found.items()
        }

    return rows


def class_batches(
    split: Split,
    indices: Int[np.ndarray, " n"],
    labels: Int[np.ndarray, " n"],
    *,
    chip: Chip,
    batch_size: int,
    per_class: int,
    seed: int,
    process_index: int = 0,
    process_count: int = 1,
    threads: int = 2,
) -> BatchIterator:
    """Returns an endless iterator over this process's share of batches with several of each class.

    The classes of a batch are drawn without replacement, and so are a class's examples if it has
    enough of them. Otherwise some are in the batch several times.

    Args:
      split: the split to read from.
      indices: ``[n]``, numbers of the training examples.
      labels: ``[n]``, their labels.
      chip: the geometry; all chips must have one shape.
      batch_size: examples per batch over all processes.
      per_class: examples per class in a batch; more if there are too few classes to fill it.
      seed: seed of the draws.
      process_index: this process's number.
      process_count: the number of processes.
      threads: number of threads that read ahead.

    Returns:
      Batches like those of :func:`jaxatr.data.train_batches`, with ``draw``, the batch's number.
      Where a class is too small, ``draw`` also numbers an example's copies in the batch, so that
      each is augmented anew.

    Raises:
      ValueError: the batch size is not divisible by the processes or less than ``per_class``, or
        the chips differ in shape.
    """
    if not 1 <= per_class <= batch_size:
        raise ValueError(f"per_class: got {per_class}, wanted 1 to the batch's {batch_size}")
    read = Reader(split, indices, labels, chip)
    mine = process_share(batch_size, process_index, process_count)
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    count = min(batch_size // per_class, len(members))
    sizes = np.full(count, batch_size // count)
    sizes[: batch_size % count] += 1
    enough = min(map(len, members)) >= max(sizes)
    most = 1 if enough else max(sizes)

    def make(number: int) -> Batch:
        draw = np.random.default_rng((seed, number))
        chosen = draw.choice(len(members), count, replace=False)
        positions = np.concatenate(
            [
                draw.choice(members[which], size, replace=size > len(members[which]))
                for which, size in zip(chosen, sizes, strict=True)
            ]
        )
        copies = np.tril(positions[:, None] == positions, -1).sum(axis=1)
        numbers = (number * most + copies)[mine].astype(np.int32)
        epoch = np.full(len(numbers), number * batch_size // len(indices), np.int32)
        return {**read(positions[mine]), "draw": numbers, "epoch": epoch}

    return _endless(make, 0, threads)


def _endless(make: Callable[[int], Batch], start: int, threads: int) -> BatchIterator:
    import grain

    return read_ahead(grain.MapDataset.range(start, _FOR_EVER).map(make), threads)
