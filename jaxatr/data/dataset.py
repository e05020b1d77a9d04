"""Prepared data sets and their splits, with scalar columns that are read without any image."""

import dataclasses
import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from jaxatr.data.bands import Bands
from jaxatr.data.chip import Chip
from jaxatr.typing import Int, Shaped

# Up to this many bytes, a split's chips stay in memory once read, so that a batch is a single
# gather from the second epoch on.
MEMORY_LIMIT = 1 << 30
SHAPE_COLUMNS = ("height", "width", "channels")

SCENE_ARRAYS = ("boxes", "labels")
"""Names of a scene's arrays: the boxes of its targets ``[n, 4]``, x0, y0, x1, y1 in pixels, and
their classes ``[n]``."""


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A prepared data set, opened by :func:`jaxatr.data.open_dataset`.

    Attributes:
      name: the name it was opened or prepared under.
      version: version of the builder that wrote the records.
      classes: names of the fine classes, indexed by ``label``.
      coarse_classes: names of the coarse classes, or None where no hierarchy is known.
      fine_to_coarse: the coarse class of each fine one, or None.
      fingerprint: SHA-256 of the prepared content, equal on every machine and independent of the
        files' dates.
      splits: split names to :class:`Split`.
      skipped: (file, reason) of corrupt images, clips and chips that were left out on request.
      directory: folder of the records.
      notes: lines on other data that was left out, with the reason, or that deserves attention.
      bands: the bands of the images, and how they are read from files.
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
    bands: Bands = Bands()


class Split:
    """The numbered examples of one split.

    Attributes:
      name: the split's name.
      classes: the data set's class names.
      columns: arrays over the split, one for each scalar of the examples: ``label``, ``id``,
        ``height``, ``width``, ``channels`` and others that are known (``coarse``, ``file``,
        ``range_m``, ``band`` …). They come from an index; no image is decoded.
      dtype: the images' dtype.
    """

    def __init__(
        self,
        name: str,
        records: Any,
        columns: Mapping[str, np.ndarray],
        classes: tuple[str, ...],
        dtype: np.dtype,
    ):
        """Wraps ``records``, which maps an example's number to its arrays."""
        self.name = name
        self.classes = classes
        self.columns: Mapping[str, np.ndarray] = MappingProxyType(dict(columns))
        self.dtype = np.dtype(dtype)
        self.records = records
        self._stores: dict[tuple, _Store | None] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles all but the chips in memory, which each copy and each process reads again."""
        return Split, (self.name, self.records, dict(self.columns), self.classes, self.dtype)

    def __len__(self) -> int:
        """Returns the number of examples."""
        return len(self.columns["label"])

    def __getitem__(self, index: int | np.integer) -> dict[str, Any]:
        """Returns an example: ``image [h, w, c]``, ``label``, ``id`` and its other columns."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"example {index} of the {len(self)} in split {self.name!r}")
        index = int(index) % len(self)
        record = self.records[index]
        arrays = {k: v for k, v in record.items() if isinstance(v, np.ndarray) and v.ndim}
        scalars = {k: v[index] for k, v in self.columns.items() if k not in SHAPE_COLUMNS}
        return {**scalars, **arrays}

    def image(self, index: int | np.integer) -> Shaped[np.ndarray, "h w c"]:
        """Returns the image ``[h, w, c]`` of example ``index``."""
        return self.records[int(index)]["image"]

    def chip_shape(self, indices: Int[np.ndarray, " n"], chip: Chip) -> tuple[int, int, int]:
        """Returns the common ``(h, w, c)`` of these examples' chips.

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
        """Returns the chips ``[b, h, w, c]`` of these examples, from memory if they fit there.

        Args:
          indices: ``[b]``, numbers of the examples.
          chip: the geometry.
          shape: the chips' shape, from :meth:`chip_shape` for a set that includes these examples.
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
    """Chips in memory, filled as they are read (untouched pages take no memory)."""

    def __init__(self, length: int, shape: tuple[int, int, int], dtype: np.dtype):
        self.chips = np.empty((length, *shape), dtype)
        self.filled = np.zeros(length, bool)
