"""A prepared data set: its splits, and an index of every scalar that needs no image to be read."""

import dataclasses
import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from jaxatr.data.chip import Chip
from jaxatr.typing import Int, Shaped

# Below this many bytes a split's chips stay in memory once they were read, so that from the second
# epoch on a batch costs one gather.
MEMORY_LIMIT = 1 << 30
SHAPE_COLUMNS = ("height", "width", "channels")


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A prepared data set, as :func:`jaxatr.data.open_dataset` returns it.

    Attributes:
      name: the name it was opened or prepared under.
      version: of the builder that wrote the records.
      classes: names of the fine classes; ``label`` counts them.
      coarse_classes: names of the coarse classes, or None where no hierarchy is known.
      fine_to_coarse: the coarse class of each fine one, or None.
      fingerprint: SHA-256 of everything that was prepared; the same content has the same one on
        every machine, whatever the files' dates.
      splits: name to :class:`Split`.
      skipped: (file, why) of the corrupt images, clips and chips left out on request.
      directory: where the records lie.
      notes: what else was left out and why, and what there is to know of what was not.
    """

    name: str
    version: str
    classes: tuple[str, ...]
    coarse_classes: tuple[str, ...] | None
    fine_to_coarse: tuple[int, ...] | None
    fingerprint: str
    splits: Mapping[str, "Split"]
    skipped: tuple[tuple[str, str], ...]
    directory: Path
    notes: tuple[str, ...] = ()


class Split:
    """The examples of one split, by number.

    Attributes:
      name: of the split.
      classes: the data set's class names.
      columns: every per-example scalar as an array over the split: ``label``, ``id``, ``height``,
        ``width``, ``channels`` and what else is known (``coarse``, ``file``, ``range_m``, ``band``
        …). They come from an index; no image is decoded.
      dtype: of the images.
    """

    def __init__(
        self,
        name: str,
        records: Any,
        columns: Mapping[str, np.ndarray],
        classes: tuple[str, ...],
        dtype: np.dtype,
    ):
        """Wraps ``records``, which give the arrays of an example by its number."""
        self.name = name
        self.classes = classes
        self.columns: Mapping[str, np.ndarray] = MappingProxyType(dict(columns))
        self.dtype = np.dtype(dtype)
        self._records = records
        self._stores: dict[tuple, _Store | None] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Returns the number of examples."""
        return len(self.columns["label"])

    def __getitem__(self, index: int | np.integer) -> dict[str, Any]:
        """Returns example ``index``: ``image [h, w, c]``, ``label``, ``id`` and what is known."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"example {index} of the {len(self)} in split {self.name!r}")
        index = int(index) % len(self)
        record = self._records[index]
        arrays = {k: v for k, v in record.items() if isinstance(v, np.ndarray) and v.ndim}
        scalars = {k: v[index] for k, v in self.columns.items() if k not in SHAPE_COLUMNS}
        return {**scalars, **arrays}

    def image(self, index: int | np.integer) -> Shaped[np.ndarray, "h w c"]:
        """Returns the image ``[h, w, c]`` of example ``index``."""
        return self._records[int(index)]["image"]

    def chip_shape(self, indices: Int[np.ndarray, " n"], chip: Chip) -> tuple[int, int, int]:
        """Returns the one ``(h, w, c)`` that the chips of these examples have.

        Raises:
          ValueError: the chip refuses one of the images, or the chips differ in shape.
        """
        sizes = np.stack([self.columns[name][indices] for name in SHAPE_COLUMNS], axis=1)
        shapes = {}
        for size in np.unique(sizes, axis=0):
            shapes.setdefault(chip.output_shape(tuple(map(int, size))), size)
        if len(shapes) > 1:
            found = ", ".join("x".join(map(str, shape)) for shape in sorted(shapes)[:4])
            raise ValueError(
                f"the images of split {self.name!r} do not share a shape ({found}"
                f"{', …' if len(shapes) > 4 else ''}): set data.center_crop or data.size "
                "(and data.channels where gray and colour are mixed)"
            )
        return next(iter(shapes))

    def chips(
        self, indices: Int[np.ndarray, " b"], chip: Chip, shape: tuple[int, int, int]
    ) -> Shaped[np.ndarray, "b h w c"]:
        """Returns the chips ``[b, h, w, c]`` of these examples, from memory where they fit there.

        Args:
          indices: ``[b]`` numbers of examples.
          chip: the geometry.
          shape: what :meth:`chip_shape` returned for a set of examples that holds these.
        """
        store = self._store(chip, shape)
        if store is None:
            return np.stack([chip(self.image(index)) for index in indices])
        for index in indices[~store.filled[indices]]:
            store.chips[index] = chip(self.image(index))
            store.filled[index] = True  # after the pixels: another thread may be reading
        return store.chips[indices]

    def _store(self, chip: Chip, shape: tuple[int, int, int]) -> "_Store | None":
        with self._lock:
            if (chip, shape) not in self._stores:
                used = sum(store.chips.nbytes for store in self._stores.values() if store)
                needed = len(self) * int(np.prod(shape)) * self.dtype.itemsize
                fits = used + needed <= MEMORY_LIMIT
                self._stores[chip, shape] = _Store(len(self), shape, self.dtype) if fits else None
            return self._stores[chip, shape]


class _Store:
    """Chips in memory, filled as they are read; memory is taken only for those."""

    def __init__(self, length: int, shape: tuple[int, int, int], dtype: np.dtype):
        self.chips = np.empty((length, *shape), dtype)
        self.filled = np.zeros(length, bool)
