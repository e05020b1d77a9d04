"""From a split to batches of NumPy arrays, through grain: deterministic, and resumable exactly."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np

from jaxatr.data.chip import Chip
from jaxatr.data.dataset import Split
from jaxatr.typing import Float, Int

Batch = dict[str, np.ndarray]


@runtime_checkable
class BatchIterator(Protocol):
    """An endless iterator over batches that can be taken up again where it was: one of grain's."""

    def __iter__(self) -> Iterator[Batch]:
        """Returns itself."""
        ...

    def __next__(self) -> Batch:
        """Returns the next batch."""
        ...

    def get_state(self) -> dict[str, Any]:
        """Returns its position, as JSON holds it."""
        ...

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes to a position of :meth:`get_state`."""
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
) -> BatchIterator:
    """Returns an endless iterator over this process's share of shuffled batches.

    One stream goes round the examples again and again, in a new order each time, and is cut into
    batches of ``batch_size``; a batch may hold the end of one round and the start of the next.
    Each process takes its rows of every batch, so N processes together see what one would.

    Args:
      split: to read from.
      indices: ``[n]`` numbers of the examples to train on.
      labels: ``[n]`` their labels, already 0..K-1.
      chip: geometry; all chips must have one shape.
      batch_size: of all processes together.
      seed: of the order.
      process_index: which process this is.
      process_count: how many there are.
      threads: that read ahead.

    Returns:
      Batches of ``image [b, h, w, c]`` in the split's dtype, ``label``, ``id`` and ``epoch``
      (how often the stream had gone round before this example), int32 ``[b]``; with ``get_state``
      and ``set_state``.

    Raises:
      ValueError: the batch does not divide by the processes, the chips differ in shape, or
        ``labels`` does not match ``indices``.
    """
    import grain  # takes half a second, and a reader of single images does not need it

    read = Reader(split, indices, labels, chip)
    mine = process_share(batch_size, process_index, process_count)

    def make(drawn: tuple[np.ndarray, np.ndarray]) -> Batch:
        place, position = (column[mine] for column in drawn)
        return {**read(position), "epoch": (place // len(indices)).astype(np.int32)}

    positions = grain.MapDataset.range(len(indices)).seed(seed).shuffle().repeat()
    batches = positions.map_with_index(lambda place, position: (place, position)).batch(batch_size)
    return read_ahead(batches.map(make), threads)


def read_ahead(batches: Any, threads: int) -> BatchIterator:
    """Returns an iterator over a grain ``MapDataset`` of batches, made by threads in advance."""
    import grain

    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)
    iterator: Any = iter(batches.to_iter_dataset(options))
    return iterator


def process_share(batch_size: int, process_index: int, process_count: int) -> slice:
    """Returns which rows of a batch are a process's.

    Raises:
      ValueError: the batch does not divide by the processes.
    """
    if batch_size < 1 or batch_size % process_count:
        raise ValueError(
            f"a batch of {batch_size} does not divide by {process_count} processes: "
            f"set config.train.batch_size to a multiple of all their devices"
        )
    share = batch_size // process_count
    return slice(process_index * share, (process_index + 1) * share)


@dataclasses.dataclass(frozen=True)
class EvalBatches:
    """Batches in the order of the examples given; every loop over it starts anew."""

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
    """Returns the examples once, in the given order, as often as it is looped over.

    Batches are those of :func:`train_batches` without ``epoch`` and with ``mask``, bool ``[b]``:
    the last one is filled up with repeats of the last example, whose mask is False.

    Raises:
      ValueError: as :func:`train_batches`.
    """
    if batch_size < 1:
        raise ValueError(f"the batch size must be at least 1, got {batch_size}")
    return EvalBatches(Reader(split, indices, labels, chip), len(indices), batch_size)


def image_statistics(
    split: Split, indices: Int[np.ndarray, " n"], chip: Chip, *, most: int = 20_000
) -> tuple[Float[np.ndarray, " c"], Float[np.ndarray, " c"]]:
    """Returns mean and standard deviation per channel of the chips' pixels, in their raw units.

    Args:
      split: to read from.
      indices: ``[n]`` numbers of the training examples.
      chip: geometry.
      most: how many chips to read at most; of more, evenly spaced ones are taken.

    Returns:
      ``(mean, std)``, float64 ``[c]``. Of a channel that never changes the deviation is given as
      1, so that dividing by it leaves zeros and not NaN.

    Raises:
      ValueError: there are no examples, or their chips differ in shape.
    """
    read = Reader(split, indices, np.zeros(len(indices), np.int32), chip)
    positions = np.linspace(0, len(indices) - 1, min(most, len(indices))).astype(np.int64)
    # Chan's pairwise update: sums of squares about a running mean lose no digits to a large mean.
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
    # Rounding of the sums leaves a constant channel some 1e-16 of its value, in place of 0.
    return mean, np.where(std > 1e-12 * np.abs(mean), std, 1.0)


class Reader:
    """Rows of a batch for positions in ``indices``."""

    def __init__(self, split: Split, indices: np.ndarray, labels: np.ndarray, chip: Chip):
        """Checks the examples; the arguments are those of the batches' functions.

        Raises:
          ValueError: there are no examples, not as many labels, or the chips differ in shape.
        """
        self._indices, self._labels = np.asarray(indices), np.asarray(labels, np.int32)
        if not len(self._indices):
            raise ValueError(f"no examples of split {split.name!r} were given")
        if self._labels.shape != self._indices.shape:
            raise ValueError(
                f"{len(self._indices)} indices need as many labels, got {self._labels.shape}"
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
