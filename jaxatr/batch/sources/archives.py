"""The images in an archive, read without unpacking all of it.

A member of a ``.zip`` or an uncompressed ``.tar`` is read directly. A compressed ``.tar`` has to be
read from its beginning: a worker continues where it stopped, so that it reads the archive once.
"""

import collections
import os
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from jaxatr.batch.sources.source import Found, Source, Unread, written
from jaxatr.data import archive, envi, reason_of
from jaxatr.data.archive import Member
from jaxatr.data.files_below import is_hidden
from jaxatr.data.image_paths import kind_of_member, no_image
from jaxatr.data.scene_image import is_world_file

_APART = "belongs to an image beside it, with which it is read from a folder: unpack the archive"


class Archive(Source):
    """The images of an archive, in its order.

    A key is a list of a member's name and number, and in an uncompressed tar its offset and length.
    """

    def __init__(self, name: str, *, scenes: bool = False):
        """Reads nothing yet.

        Args:
          name: the archive.
          scenes: whether map coordinates of the images are wanted.
        """
        super().__init__(name)
        self._scenes = scenes
        self._zip: zipfile.ZipFile | None = None
        self._first: dict[str, zipfile.ZipInfo] = {}  # of each name in the zip
        self._members: Iterator[tuple[int, Member]] = iter(())
        self._at = -1  # number of the last member that was read

    def __getstate__(self) -> dict:
        """Excludes open files: each process opens its own."""
        return self.__dict__ | {"_zip": None, "_first": {}, "_members": None, "_at": -1}

    def state(self) -> int:
        """Returns the archive's size in bytes."""
        return self._path.stat().st_size

    def keys(self) -> Iterator[list | Unread]:
        """Yields the keys; holds all names of the archive in memory.

        Raises:
          ValueError: the archive has no image, or the rest of it is damaged.
        """
        self.passed = passed = collections.Counter[str]()
        names: set[str] = set()  # strings are smaller than paths
        with archive.reading(self._path):
            for number, member in enumerate(archive.members(self._path)):
                if any(map(is_hidden, member.path.parts)):
                    continue
                if self._is_apart(member.path):
                    yield Unread(str(member.path), ValueError(_APART))
                elif kind := kind_of_member(self._path, member):
                    passed[kind] += 1
                elif (path := str(member.path)) in names:
                    yield Unread(path, archive.twice(self._path, member))
                else:
                    names.add(path)
                    yield [member.name, number, *(member.place or ())]
        if not names:
            raise no_image(self.name, passed)

    def _is_apart(self, path: PurePath) -> bool:
        """Whether a member is of no use without another."""
        return path.suffix.lower() == envi.SUFFIX or (self._scenes and is_world_file(path))

    def read(self, keys: Sequence[list], scratch: Path) -> Iterator[Found]:
        """Yields the members as files, or as an error for a damaged one."""
        for name, number, *place in keys:
            known = str(PurePath(self.name, name.replace("\\", "/")))
            try:
                with archive.reading(self._path):
                    content = self._content(name, number, place)
            except ValueError as error:
                yield Found(known, "", ValueError(reason_of(error, str(self._path))))
            else:
                yield written(scratch, number, known, content)

    def _content(self, name: str, number: int, place: Sequence[int]) -> bytes:
        if place:
            offset, length = place
            with open(self._path, "rb") as file:
                file.seek(offset)
                content = file.read(length)
            if len(content) < length:
                raise tarfile.ReadError("unexpected end of data")  # as tarfile says it
            return content
        if self._path.name.lower().endswith(".zip"):
            if self._zip is None:
                self._zip = zipfile.ZipFile(self._path)
                self._first = {
                    archive.name_in_zip(one): one for one in reversed(self._zip.infolist())
                }
            if name not in self._first:
                raise self._gone(name)
            return self._zip.read(self._first[name])
        return self._passing(name, number)

    def _passing(self, name: str, number: int) -> bytes:
        """Reads a member of a compressed archive, skipping those before it."""
        if number <= self._at or self._at < 0:
            self._members = enumerate(archive.members(self._path))
        self._at = -1  # after an error, the next read starts from the beginning
        for at, member in self._members:
            if at == number:
                with member.open() as file:
                    content = file.read()
                self._at = at
                return content
        raise self._gone(name)

    def _gone(self, name: str) -> ValueError:
        return ValueError(f"{self._path}: {name!r} is no longer in the archive")


def is_archive(name: str) -> bool:
    """Whether a path is a file with the name of an archive."""
    return os.path.isfile(name) and archive.is_archive(Path(name))
