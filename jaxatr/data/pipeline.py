"""Deterministic, exactly resumable batches of NumPy arrays from a split, through grain."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np

from jaxatr.data.balance import UNBALANCED, balanced_pass
from jaxatr.data.chip import Chip
from jaxatr.data.dataset import Split
from jaxatr.typing import Float, Int

Batch = dict[str, np.ndarray]


@runtime_checkable
class BatchIterator(Protocol):
    """An endless iterator over batches that can be resumed at a saved position."""

    def __iter__(self) -> Iterator[Batch]:
        """Returns the iterator itself."""
        ...

    def __next__(self) -> Batch:
        """Returns the next batch."""
        ...

    def get_state(self) -> dict[str, Any]:
        """Returns the position as a JSON-compatible dictionary."""
        ...

    def set_state(self, state: dict[str, Any]) -> None:
        """Moves to a position returned by :meth:`get_state`."""
        ...


def train_batches(
    split: Split,
    indices: Int[np.ndarray, " n"],
    labels: Int[np.ndarray, " n"],
    *,
    chip: Chip,
    batch_size: int,
    seed: int,
    process_index: int = 0,
    process_count: int = 1,
    threads: int = 2,
    balance: str = UNBALANCED,
) -> BatchIterator:
    """Returns an endless iterator over this process's share of shuffled batches.

    One stream passes over the examples again and again, in a new order each time, and is cut into
    batches of ``batch_size``; a batch may span the end of one pass and the start of the next. Each
    process takes its rows of every batch, so N processes together see the same as one.

    Args:
      split: the split to read from.
      indices: ``[n]``, numbers of the training examples.
      labels: ``[n]``, their labels, in 0..K-1.
      chip: the geometry; all chips must have one shape.
      batch_size: batch size over all processes.
      seed: seed of the order.
      process_index: this process's number.
      process_count: the number of processes.
      threads: number of threads that read ahead.
      balance: repeat examples of rare classes in each pass (:mod:`jaxatr.data.balance`).

    Returns:
      Batches of ``image [b, h, w, c]`` in the split's dtype, ``label``, ``id`` and ``epoch``,
      int32 ``[b]``; with ``get_state`` and ``set_state``. ``epoch`` is the number of completed
      passes before the example; where passes repeat examples, it numbers the copies one by one, so
      that each is augmented anew, and ``pass`` is the number of completed passes.

    Raises:
      ValueError: the batch size is not divisible by the processes, the chips differ in shape, or
        ``labels`` does not match ``indices``.
    """
    import grain  # slow to import, and not needed for reading single images

    read = Reader(split, indices, labels, chip)
    mine = process_share(batch_size, process_index, process_count)
    rows, copies = balanced_pass(labels, balance)
    most = 1 + int(copies.max(initial=0))

    def make(drawn: tuple[np.ndarray, np.ndarray]) -> Batch:
        place, position = (column[mine] for column in drawn)
        done = (place // len(rows)).astype(np.int32)
        epoch = (done * most + copies[position]).astype(np.int32)
        return {**read(rows[position]), "epoch": epoch, **({"pass": done} if most > 1 else {})}

    positions = grain.MapDataset.range(len(rows)).seed(seed).shuffle().repeat()
    batches = positions.map_with_index(lambda place, position: (place, position)).batch(batch_size)
    return read_ahead(batches.map(make), threads)


def read_ahead(batches: Any, threads: int) -> BatchIterator:
    """Iterates over a grain ``MapDataset`` of batches, which threads make in advance."""
    import grain

    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)
    iterator: Any = iter(batches.to_iter_dataset(options))
    return iterator


def process_share(batch_size: int, process_index: int, process_count: int) -> slice:
    """Returns the slice of a batch's rows that belongs to a process.

    Raises:
      ValueError: the batch size is not divisible by the number of processes.
    """
    if batch_size < 1 or batch_size % process_count:
        raise ValueError(
            f"a batch of {batch_size} is not divisible by {process_count} processes: set "
            f"config.train.batch_size to a multiple of the number of devices"
        )
    share = batch_size // process_count
    return slice(process_index * share, (process_index + 1) * share)


@dataclasses.dataclass(frozen=True)
class EvalBatches:
    """Batches in the given order of examples; every loop over it starts from the beginning."""

    _read: Callable[[np.ndarray], dict[str, Any]]
    _length: int
    _batch_size: int

    def __len__(self) -> int:
        """Returns the number of batches."""
        return -(-self._length // self._batch_size)

    def __iter__(self) -> Iterator[Batch]:
        """Yields the batches, read ahead by one thread."""
        import grain

        return iter(read_ahead(grain.MapDataset.range(len(self)).map(self._make), threads=1))

    def _make(self, number: int) -> Batch:
        positions = np.arange(number * self._batch_size, (number + 1) * self._batch_size)
        mask = positions < self._length
        return {**self._read(np.minimum(positions, self._length - 1)), "mask": mask}


def eval_batches(
    split: Split,
    indices: Int[np.ndarray, " n"],
    labels: Int[np.ndarray, " n"],
    *,
    chip: Chip,
    batch_size: int,
) -> EvalBatches:
    """Returns a re-iterable over batches of the examples in the given order.

    Batches are those of :func:`train_batches` without ``epoch`` and with ``mask``, bool ``[b]``:
    the last batch is padded with repeats of the last example, whose mask is False.

    Args:
      split: the split to read from.
      indices: ``[n]``, numbers of the examples.
      labels: ``[n]``, their labels.
      chip: the geometry; all chips must have one shape.
      batch_size: examples per batch.

    Raises:
      ValueError: the batch size is below 1, the chips differ in shape, or ``labels`` does not match
        ``indices``.
    """
    if batch_size < 1:
        raise ValueError(f"the batch size must be at least 1, got {batch_size}")
    return EvalBatches(Reader(split, indices, labels, chip), len(indices), batch_size)


def image_statistics(
    split: Split, indices: Int[np.ndarray, " n"], chip: Chip, *, most: int = 20_000
) -> tuple[Float[np.ndarray, " c"], Float[np.ndarray, " c"]]:
    """Computes the mean and standard deviation per channel of the chips' raw pixels.

    Args:
      split: the split to read from.
      indices: ``[n]``, numbers of the training examples.
      chip: the geometry.
      most: the largest number of chips, evenly spaced if there are more.

    Returns:
      ``(mean, std)``, float64 ``[c]``. The deviation of a constant channel is given as 1, so that
      dividing by it gives zeros instead of NaN.

    Raises:
      ValueError: there are no examples, or their chips differ in shape.
    """
    read = Reader(split, indices, np.zeros(len(indices), np.int32), chip)
    positions = np.linspace(0, len(indices) - 1, min(most, len(indices))).astype(np.int64)
    # Chan's pairwise update: squares about a running mean keep their precision with a large mean.
    count, mean, squares = 0, np.zeros(read.shape[2]), np.zeros(read.shape[2])
    for start in range(0, len(positions), 256):
        pixels = read.chips(positions[start : start + 256]).astype(np.float64)
        size, block = pixels[..., 0].size, pixels.mean(axis=(0, 1, 2))
        shift = block - mean
        mean = mean + shift * size / (count + size)
        squares += ((pixels - block) ** 2).sum(axis=(0, 1, 2))
        squares += shift**2 * count * size / (count + size)
        count += size
    std = np.sqrt(squares / count)
    # By rounding, a constant channel has a deviation of about 1e-16 of its value.
    return mean, np.where(std > 1e-12 * np.abs(mean), std, 1.0)


class Reader:
    """Reads rows of a batch by their positions in ``indices``."""

    def __init__(self, split: Split, indices: np.ndarray, labels: np.ndarray, chip: Chip):
        """Checks the examples.

        Args:
          split: the split to read from.
          indices: ``[n]``, numbers of the examples.
          labels: ``[n]``, their labels.
          chip: the geometry.

        Raises:
          ValueError: there are no examples, ``labels`` does not match, or the chips differ in
            shape.
        """
        self._indices, self._labels = np.asarray(indices), np.asarray(labels, np.int32)
        if not len(self._indices):
            raise ValueError(f"got no examples of split {split.name!r}, wanted at least one")
        if self._labels.shape != self._indices.shape:
            raise ValueError(
                f"got labels of shape {self._labels.shape}, wanted one for each of "
                f"{len(self._indices)} indices"
            )
        self.shape = split.chip_shape(self._indices, chip)
        self._split, self._chip = split, chip

    def chips(self, positions: np.ndarray) -> np.ndarray:
        """Returns the chips ``[b, h, w, c]`` at these positions."""
        return self._split.chips(self._indices[positions], self._chip, self.shape)

    def __call__(self, positions: np.ndarray) -> dict[str, Any]:
        """Returns ``image``, ``label`` and ``id`` of the examples at these positions."""
        ids = self._split.columns["id"][self._indices[positions]]
        return {
            "image": self.chips(positions),
            "label": self._labels[positions],
            "id": ids.astype(np.int32),
        }
