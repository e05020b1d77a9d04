"""The images of a prepared data set, from TFDS or this package, by their numbers."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr import data
from jaxatr.batch.sources.source import Found, Source
from jaxatr.data import index

PREFIX = "tfds:"


class Records(Source):
    """A split of a prepared data set."""

    def __init__(self, name: str, directory: Path, split: str):
        super().__init__(name)
        self._directory, self._split = directory, split
        self._opened: Any = None

    @property
    def place(self) -> str:
        """The name, which does not depend on the working directory."""
        return self.name

    def __getstate__(self) -> dict:
        """Excludes the open records: each process opens its own."""
        return self.__dict__ | {"_opened": None}

    def state(self) -> str:
        """Returns the set's fingerprint."""
        return (index.description(self._directory) or {})["fingerprint"]

    def keys(self) -> Iterator[int]:
        """Yields the examples' numbers."""
        yield from range(len(self._images))

    def read(self, keys: Sequence[int], scratch: Path) -> Iterator[Found]:
        """Writes the images to files, and yields them."""
        for key in keys:
            name = f"{self.name}/{key}"
            try:
                path = scratch / f"{key}.npy"
                np.save(path, self._images[key])
            except ValueError as error:
                yield Found(name, "", error)
            else:
                yield Found(name, str(path))

    @property
    def _images(self) -> Sequence[np.ndarray]:
        if self._opened is None:
            self._opened = index.images_of(self._directory, self._split)
        return self._opened


def splits_of(name: str, data_dir: str | None) -> list[Records]:
    """Opens the splits that ``tfds:NAME`` or ``tfds:NAME:SPLIT`` names.

    Args:
      name: the argument, as given by the user.
      data_dir: folder of prepared data sets; None for the default.

    Raises:
      ValueError: there is no such data set or split.
    """
    text = name.removeprefix(PREFIX)
    dataset, _, split = text.partition(":")
    directory = data.find_dataset(dataset, data_dir=data_dir)
    splits = (index.description(directory) or {})["splits"]
    if split and split not in splits:
        raise ValueError(f"{name}: got split {split!r}, wanted one of {', '.join(splits)}")
    wanted = [split] if split else splits
    return [Records(f"{PREFIX}{dataset}:{one}", directory, one) for one in wanted]
