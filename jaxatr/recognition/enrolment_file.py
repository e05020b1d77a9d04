"""Reading and writing the classes enrolled in a finished run.

The preprocessed chips are saved in ``enrolled/HASH.npz``. ``enrolled.json`` lists the class, the
source, the date and the chips' SHA-256 of each enrolment. It is written last and atomically, so
that an interrupted enrolment has no effect. The run's other files do not change.
"""

import contextlib
import datetime
import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from jaxatr import files, forms
from jaxatr.data import class_name
from jaxatr.forms import COUNT, TEXT, TEXTS, Form
from jaxatr.training.folder import write_file
from jaxatr.typing import Int, Shaped

FILE = "enrolled.json"
FOLDER = "enrolled"


class Entry(NamedTuple):
    """Chips of a class that were enrolled together.

    Attributes:
      name: name of the class.
      source: source of the chips.
      date: date and time of the enrolment, ISO 8601.
      file: path of the file with the chips, relative to the run's folder.
      sha256: SHA-256 of each chip's pixels.
    """

    name: str
    source: str
    date: str
    file: str
    sha256: tuple[str, ...]


class Enrolment(NamedTuple):
    """All enrolments of a run.

    Attributes:
      score: name of the score that decides since the enrolment.
      entries: the enrolments in chronological order; at least one.
    """

    score: str
    entries: tuple[Entry, ...]

    def further(self, known: Sequence[str]) -> tuple[str, ...]:
        """Returns the enrolled classes that are not in ``known``, in the order of their labels."""
        named = dict.fromkeys(entry.name for entry in self.entries)
        return tuple(name for name in named if name not in known)

    def counts(self) -> dict[str, int]:
        """Returns the number of chips of each class, by name."""
        counts: dict[str, int] = {}
        for entry in self.entries:
            counts[entry.name] = counts.get(entry.name, 0) + len(entry.sha256)
        return counts

    @property
    def checksums(self) -> frozenset[str]:
        """SHA-256 of all chips."""
        return frozenset(one for entry in self.entries for one in entry.sha256)

    @property
    def digest(self) -> str:
        """SHA-256 of names and chips in order, which identifies anything derived from them."""
        named = [[entry.name, *entry.sha256] for entry in self.entries]
        return hashlib.sha256(json.dumps(named).encode()).hexdigest()


class EnrolledChips(NamedTuple):
    """The enrolled chips.

    Attributes:
      images: ``[n, h, w, c]``, preprocessed chips.
      labels: ``[n]``, indices of their classes: those of the run, then the additional ones.
    """

    images: Shaped[np.ndarray, "n h w c"]
    labels: Int[np.ndarray, " n"]


def checksum(chip: Shaped[np.ndarray, "h w c"]) -> str:
    """Returns the SHA-256 of a chip, equal to that of ``Examples.fingerprints``."""
    return hashlib.sha256(np.ascontiguousarray(chip).tobytes()).hexdigest()


_FORM: Form = {"score": TEXT, "enrolments": [{"sha256": TEXTS, "chips": COUNT, "*": TEXT}]}


def read(workdir: str | os.PathLike) -> Enrolment | None:
    """Reads the enrolments of a run; None if there are none.

    Raises:
      ValueError: the file cannot be read.
    """
    path = Path(workdir) / FILE
    if not path.is_file():
        return None
    content = files.read_fields(path)
    forms.check(content, _FORM, path)
    try:
        entries = tuple(
            Entry(
                **{name: one[name] for name in Entry._fields if name != "sha256"},
                sha256=tuple(one["sha256"]),
            )._replace(name=class_name(one["name"]))
            for one in content["enrolments"]
        )
        for entry in entries:
            _path(workdir, entry)
        return Enrolment(content["score"], entries)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: not readable ({error}): remove it to undo all enrolments of the run"
        ) from error


def write(workdir: str | os.PathLike, enrolment: Enrolment | None) -> None:
    """Writes the enrolments of a run atomically; removes the file if there are none."""
    path = Path(workdir) / FILE
    if enrolment is None:
        path.unlink(missing_ok=True)
        return
    entries = [
        {**entry._asdict(), "chips": len(entry.sha256), "sha256": list(entry.sha256)}
        for entry in enrolment.entries
    ]
    content = {"score": enrolment.score, "enrolments": entries}
    if jax.process_index() == 0:
        files.write_fields(path, content)


def keep(
    workdir: str | os.PathLike, name: str, source: str, images: Shaped[np.ndarray, "n h w c"]
) -> Entry:
    """Writes chips to a run's folder; they take effect once :func:`write` has written the entry.

    Args:
      workdir: the run's folder.
      name: name of their class.
      source: source of the chips.
      images: ``[n, h, w, c]``, preprocessed chips.

    Returns:
      The entry.
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
    """Deletes the chips of removed entries."""
    for entry in entries:
        _path(workdir, entry).unlink(missing_ok=True)


def _path(workdir: str | os.PathLike, entry: Entry) -> Path:
    """Returns the path of an entry's chips.

    Raises:
      ValueError: it is not in the folder of enrolled chips, so that another file of the run would
        be read, or deleted.
    """
    folder, name = os.path.split(entry.file)
    if folder != FOLDER or not name:
        raise ValueError(f"{entry.file!r} is not a path within {Path(workdir, FOLDER)}")
    return files.within(workdir, entry.file)


def chips(workdir: str | os.PathLike, enrolment: Enrolment, known: Sequence[str]) -> EnrolledChips:
    """Reads the enrolled chips.

    Args:
      workdir: the run's folder.
      enrolment: the run's enrolments.
      known: the classes on which the run was trained.

    Raises:
      ValueError: a file is missing or corrupt, or its class was removed meanwhile.
    """
    classes = [*known, *enrolment.further(known)]
    images, labels = [], []
    for entry in enrolment.entries:
        path = _path(workdir, entry)
        try:
            with np.load(path) as arrays:
                enrolled = np.asarray(arrays["images"])
            if tuple(map(checksum, enrolled)) != entry.sha256:
                raise ValueError("the checksums of its chips do not match")
        except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
            now = read(workdir)
            if now is None or entry not in now.entries:
                raise ValueError(
                    f"{workdir}: {entry.name} was removed after its enrolment had been read: run "
                    "the command again"
                ) from error
            raise ValueError(
                f"{path}: not readable ({error}): jaxatr enrol --workdir={workdir} "
                f"--remove={entry.name} removes the class"
            ) from error
        images.append(enrolled)
        labels += [classes.index(entry.name)] * len(enrolled)
    return EnrolledChips(np.concatenate(images), np.array(labels, np.int32))


def locked(
    workdir: str | os.PathLike, given_up: Callable[[], bool] = lambda: False
) -> contextlib.AbstractContextManager[object]:
    """Keeps other processes from changing a run's enrolments; see :func:`jaxatr.files.locked`."""
    return files.locked(Path(workdir) / f".{FILE}.lock", given_up=given_up)


def describe(enrolment: Enrolment) -> str:
    """Describes the enrolments in one line."""
    counts = ", ".join(f"{name} by {count} chips" for name, count in enrolment.counts().items())
    return f"enrolled: {counts} (jaxatr enrol --remove=NAME undoes it)"
