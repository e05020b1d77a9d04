"""Single files, and folders of images that are searched recursively."""

import collections
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from jaxatr.batch.sources.source import Found, Source, Unread
from jaxatr.data import envi
from jaxatr.data.bands import PLAIN, Bands
from jaxatr.data.files_below import iterate_visible
from jaxatr.data.image_paths import no_image, other_kind
from jaxatr.recognition.sightings import source_of


class File(Source):
    """A file, or a folder that is one input (a track); it is not checked until it is read."""

    def __init__(self, name: str):
        """Takes the argument, which is counted under the folder that it is in."""
        super().__init__(name)
        self.counted_as = source_of(name, whole=True)

    def state(self) -> None:
        """Returns None: the name identifies the file."""

    def keys(self) -> Iterator[int]:
        """Yields the one key."""
        yield 0

    def read(self, keys: Sequence[int], scratch: Path) -> Iterator[Found]:
        """Yields the file."""
        yield from (Found(self.name, str(self._path)) for _ in keys)


class Folder(Source):
    """The images in a folder and its subfolders, in the order of their paths."""

    def __init__(self, name: str, bands: Bands = PLAIN):
        super().__init__(name)
        self._bands = bands

    def state(self) -> None:
        """Returns None: the keys are the names, which identify the files."""

    def keys(self) -> Iterator[str | Unread]:
        """Yields the paths relative to the folder; holds the names of one folder in memory."""
        self.passed = passed = collections.Counter[str]()
        empty = True
        for below, passed_as, error in iterate_visible(self._path):
            if error is not None:
                empty = False
                yield Unread(str(below), error)
            elif kind := passed_as or other_kind(self._path / below):
                passed[kind] += 1
            elif not self._with_another(self._path / below):
                empty = False
                yield str(below)
        if empty:
            raise no_image(self.name, passed)

    def _with_another(self, path: Path) -> bool:
        """Whether a file is read with another: pixels with their header, or a chip's next file."""
        return bool(envi.header_beside(path)) or self._bands.is_further(path)

    def read(self, keys: Sequence[str], scratch: Path) -> Iterator[Found]:
        """Yields the files."""
        for key in keys:
            yield Found(str(PurePath(self.name, key)), str(self._path / key))
