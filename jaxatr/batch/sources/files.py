"""Files, and folders that are searched with all folders below them."""

import collections
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from jaxatr.batch.sources.source import Found, Source
from jaxatr.data.files_below import iterate_visible
from jaxatr.data.image_paths import no_image, other_kind


class File(Source):
    """One file, or a folder that is one input, as a track is; its row says if it is none."""

    def state(self) -> None:
        """Returns nothing: a file is told by its name."""

    def keys(self) -> Iterator[int]:
        """Yields the one key."""
        yield 0

    def read(self, keys: Sequence[int], scratch: Path) -> Iterator[Found]:
        """Yields the file."""
        yield from (Found(self.name, str(self._path)) for _ in keys)


class Folder(Source):
    """The images in a folder and in those below it, in the order of their paths."""

    def state(self) -> None:
        """Returns nothing: files are told by their names, which are the keys."""

    def keys(self) -> Iterator[str]:
        """Yields the paths below the folder; in memory are the names of one folder at a time."""
        passed: collections.Counter[str] = collections.Counter()
        empty = True
        for below in iterate_visible(self._path):
            if kind := other_kind(self._path / below):
                passed[kind] += 1
            else:
                empty = False
                yield str(below)
        if empty:
            raise no_image(self.name, passed)
        self.passed = dict(passed)

    def read(self, keys: Sequence[str], scratch: Path) -> Iterator[Found]:
        """Yields the files."""
        for key in keys:
            yield Found(str(PurePath(self.name, key)), str(self._path / key))
