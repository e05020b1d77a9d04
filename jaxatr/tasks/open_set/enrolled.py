"""The classes that were enrolled in a finished run: ``enrolled.json`` in its folder and chips.

The chips are kept as the network takes them, in ``enrolled/NAME.npz``; ``enrolled.json`` says of
each enrolment which class it is of, where its chips come from, their SHA-256 and when it was made.
It is written last and all at once: until then, the run is what it was. The run's own files, what
was fitted for it among them, stay as they are.
"""

import datetime
import hashlib
import json
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxatr import files
from jaxatr.training.folder import write_file
from jaxatr.typing import Int, Shaped

FILE = "enrolled.json"
FOLDER = "enrolled"


class Entry(NamedTuple):
    """Chips of a class that were enrolled together.

    Attributes:
      name: of the class.
      source: where they come from.
      date: when, in ISO 8601.
      file: below the run's folder, with the chips.
      sha256: of each chip's pixels.
    """

    name: str
    source: str
    date: str
    file: str
    sha256: tuple[str, ...]


class Enrolment(NamedTuple):
    """Everything that is enrolled in a run.

    Attributes:
      score: the score that decides since.
      entries: in the order in which they were made; at least one.
    """

    score: str
    entries: tuple[Entry, ...]

    def further(self, known: Sequence[str]) -> tuple[str, ...]:
        """Names the classes that are not among the run's own, in the order of their numbers."""
        named = dict.fromkeys(entry.name for entry in self.entries)
        return tuple(name for name in named if name not in known)

    def counts(self) -> dict[str, int]:
        """Counts the chips of each class, by its name."""
        found: dict[str, int] = {}
        for entry in self.entries:
            found[entry.name] = found.get(entry.name, 0) + len(entry.sha256)
        return found

    @property
    def checksums(self) -> frozenset[str]:
        """Those of all chips."""
        return frozenset(one for entry in self.entries for one in entry.sha256)

    @property
    def digest(self) -> str:
        """Hashes names and chips, in their order: what is derived from them goes by it."""
        named = [[entry.name, *entry.sha256] for entry in self.entries]
        return hashlib.sha256(json.dumps(named).encode()).hexdigest()


class Chips(NamedTuple):
    """The enrolled chips.

    Attributes:
      images: ``[n, h, w, c]``, as the network takes them.
      labels: ``[n]``, numbers of their classes: those of the run, then the further ones.
    """

    images: Shaped[np.ndarray, "n h w c"]
    labels: Int[np.ndarray, " n"]


def checksum(chip: Shaped[np.ndarray, "h w c"]) -> str:
    """Hashes a chip's pixels, as :meth:`jaxatr.tasks.examples.Examples.fingerprints` does."""
    return hashlib.sha256(np.ascontiguousarray(chip).tobytes()).hexdigest()


def read(workdir: str | os.PathLike) -> Enrolment | None:
    """Reads what is enrolled in a run; None for nothing.

    Raises:
      ValueError: the file cannot be read.
    """
    path = Path(workdir) / FILE
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        entries = tuple(
            Entry(
                **{name: one[name] for name in Entry._fields if name != "sha256"},
                sha256=tuple(one["sha256"]),
            )
            for one in found["enrolments"]
        )
        return Enrolment(found["score"], entries)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: not readable ({error}): remove it, and the run is as it was trained"
        ) from error


def write(workdir: str | os.PathLike, enrolment: Enrolment | None) -> None:
    """Writes what is enrolled, all of it or nothing; without any, removes the file."""
    path = Path(workdir) / FILE
    if enrolment is None:
        path.unlink(missing_ok=True)
        return
    entries = [
        {**entry._asdict(), "chips": len(entry.sha256), "sha256": list(entry.sha256)}
        for entry in enrolment.entries
    ]
    content = {"score": enrolment.score, "enrolments": entries}
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_file(path, lambda file: file.write(text.encode()))


def keep(
    workdir: str | os.PathLike, name: str, source: str, images: Shaped[np.ndarray, "n h w c"]
) -> Entry:
    """Writes chips into a run's folder; they count once :func:`write` has the entry.

    Args:
      workdir: the run's folder.
      name: of their class.
      source: where they come from.
      images: ``[n, h, w, c]``, as the network takes them.
    """
    checksums = tuple(map(checksum, images))
    short = hashlib.sha256(json.dumps([name, *checksums]).encode()).hexdigest()[:16]
    file = f"{FOLDER}/{short}.npz"
    path = Path(workdir) / file
    path.parent.mkdir(exist_ok=True)
    write_file(path, lambda opened: np.savez_compressed(opened, images=images))
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Entry(name, source, now, file, checksums)


def discard(workdir: str | os.PathLike, entries: Sequence[Entry]) -> None:
    """Removes the chips of entries that do not count any more."""
    for entry in entries:
        (Path(workdir) / entry.file).unlink(missing_ok=True)


def chips(workdir: str | os.PathLike, enrolment: Enrolment, known: Sequence[str]) -> Chips:
    """Reads the enrolled chips.

    Args:
      workdir: the run's folder.
      enrolment: what is enrolled in it.
      known: the run's own classes.

    Raises:
      ValueError: a file is missing or damaged.
    """
    classes = [*known, *enrolment.further(known)]
    images, labels = [], []
    for entry in enrolment.entries:
        path = Path(workdir) / entry.file
        try:
            with np.load(path) as arrays:
                found = np.asarray(arrays["images"])
            if tuple(map(checksum, found)) != entry.sha256:
                raise ValueError("its chips are not those that were enrolled")
        except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{path}: not readable ({error}): jaxatr enrol --workdir={workdir} "
                f"--remove={entry.name} removes the class"
            ) from error
        images.append(found)
        labels += [classes.index(entry.name)] * len(found)
    return Chips(np.concatenate(images), np.array(labels, np.int32))


def locked(workdir: str | os.PathLike) -> Any:
    """Returns a context in which no other process enrols in a run."""
    return files.locked(Path(workdir) / f".{FILE}.lock")


def describe(enrolment: Enrolment) -> str:
    """Writes in one line what is enrolled."""
    counts = ", ".join(f"{name} by {count} chips" for name, count in enrolment.counts().items())
    return f"enrolled: {counts} (jaxatr enrol --remove=NAME undoes it)"
