"""The images in an archive, which is never unpacked as a whole.

A member of a ``.zip`` or of a plain ``.tar`` is read where it lies. A packed ``.tar`` has to be
unpacked from its beginning: a worker goes on from where it was, so that it reads the archive once.
"""

import collections
import os
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from jaxatr.batch.sources.source import Found, Source, written
from jaxatr.data import archive
from jaxatr.data.archive import Member
from jaxatr.data.files_below import is_hidden
from jaxatr.data.image_paths import no_image, other_kind


class Archive(Source):
    """An archive's images, in its own order. A key: name and number, and place in a plain tar."""

    def __init__(self, name: str):
        """Takes the archive's path."""
        super().__init__(name)
        self._zip: zipfile.ZipFile | None = None
        self._members: Iterator[tuple[int, Member]] = iter(())
        self._at = -1  # number of the last of them that was taken

    def __getstate__(self) -> dict:
        """Leaves open files out: another process opens its own."""
        return self.__dict__ | {"_zip": None, "_members": None, "_at": -1}

    def state(self) -> int:
        """Returns the archive's size in bytes."""
        return self._path.stat().st_size

    def keys(self) -> Iterator[list]:
        """Yields the keys; the names of one archive are in memory.

        Raises:
          ValueError: there is no image in it, a name comes twice, or it is damaged.
        """
        passed: collections.Counter[str] = collections.Counter()
        names: set[str] = set()
        found = 0
        with archive.reading(self._path):
            for number, member in enumerate(archive.members(self._path)):
                if any(map(is_hidden, member.path.parts)):
                    continue
                if kind := other_kind(member.path, lambda count, m=member: _begun(m, count)):
                    passed[kind] += 1
                    continue
                if member.name in names:
                    raise ValueError(f"{self.name}: {member.name!r} is in it twice")
                names.add(member.name)
                found += 1
                yield [member.name, number, *(member.place or ())]
        if not found:
            raise no_image(self.name, passed)
        self.passed = dict(passed)

    def read(self, keys: Sequence[list], scratch: Path) -> Iterator[Found]:
        """Yields files of the members; a damaged one is an error of its own."""
        for name, number, *place in keys:
            known = str(PurePath(self.name, name.replace("\\", "/")))
            try:
                with archive.reading(self._path):
                    content = self._content(name, number, place)
            except ValueError as error:
                yield Found(known, "", error)
            else:
                yield written(scratch, number, known, content)

    def _content(self, name: str, number: int, place: Sequence[int]) -> bytes:
        if place:
            offset, length = place
            with open(self._path, "rb") as file:
                file.seek(offset)
                content = file.read(length)
            if len(content) < length:
                raise ValueError(f"{self._path}: it ends within {name!r}")
            return content
        if self._path.name.lower().endswith(".zip"):
            self._zip = self._zip or zipfile.ZipFile(self._path)
            return self._zip.read(name)
        return self._passing(name, number)

    def _passing(self, name: str, number: int) -> bytes:
        """Reads a member of a packed archive, by passing those before it."""
        if number <= self._at or self._at < 0:
            self._members = enumerate(archive.members(self._path))
        self._at = -1  # should it fail, it begins anew
        for at, member in self._members:
            if at == number:
                with member.open() as file:
                    content = file.read()
                self._at = at
                return content
        raise ValueError(f"{self._path}: {name!r} is not in it any more")


def is_archive(name: str) -> bool:
    """Whether there is a file that is an archive by its name."""
    return os.path.isfile(name) and archive.is_archive(Path(name))


def _begun(member: Member, count: int) -> bytes:
    with member.open() as file:
        return file.read(count)
