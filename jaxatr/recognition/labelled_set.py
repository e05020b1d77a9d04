"""Another set of labelled images, on which a run is measured in place of its own test data."""

import hashlib
import inspect
import os
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jaxatr.data import Intake, archive, class_name, read_folder
from jaxatr.data.image_paths import TABLES
from jaxatr.data.sources import arrays
from jaxatr.data.tracks import FRAME, TRACK
from jaxatr.files import Scratch
from jaxatr.recognition.field_chips import folders_in
from jaxatr.resolve import nearest
from jaxatr.tasks.embedding.task import Embedding
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.tasks.parts import Part, part_of_chips
from jaxatr.tasks.track.of_tracks import OfTracks
from jaxatr.typing import Shaped

Measured: TypeAlias = OpenSet | Embedding
"""The tasks whose runs can be measured on another set."""

IN_MEMORY = "arrays in memory"
_LISTED = 10  # classes, or images that are left out, in a message


class LabelledSet(NamedTuple):
    """The images of a set.

    Attributes:
      part: the images as chips; classes that the run does not know are ``openset.UNKNOWN``.
      record: JSON values: ``source``, ``images`` (their number), ``classes`` (number by name),
        ``left_out`` (path and reason of each image that cannot be used) and ``fingerprint``.
    """

    part: Part
    record: dict[str, Any]


def source_of(data: str | os.PathLike | tuple[Any, Any]) -> str:
    """Returns the absolute path of a set; :data:`IN_MEMORY` for images in memory."""
    if isinstance(data, tuple):
        return IN_MEMORY
    return os.path.abspath(Path(data).expanduser())


def name_of(source: str) -> str:
    """Returns a set's name by default: its folder's or file's, without a known suffix."""
    name = Path(source).name
    suffixes = sorted((*archive.SUFFIXES, *TABLES), key=len, reverse=True)
    suffix = next((one for one in suffixes if name.lower().endswith(one)), "")
    return name[: len(name) - len(suffix)]


def read(task: Measured, source: str | os.PathLike, enrolled: Collection[str] = ()) -> LabelledSet:
    """Reads class folders, a table or an archive, with the images of all their splits.

    Images that cannot be read, or that the network does not take, are left out; a warning names
    them.

    Args:
      task: the run's task.
      source: the folder, table or archive, as for training.
      enrolled: names of further classes that the run knows.

    Raises:
      ValueError: there are no labelled images at the path, its labels are predictions, none of its
        classes is known, or none of the images of known classes can be used.
    """
    from jaxatr.data.sources import image_folder  # not for other commands

    path = Path(source_of(source))
    known = {*map(class_name, task.split.known), *enrolled}
    intake = Intake.of_run(task.config, task.record)
    chips: list[np.ndarray] = []
    names: list[str] = []
    left_out: list[tuple[str, str]] = []
    with (
        Scratch() as scratch,
        archive.naming(Path(scratch), path),
    ):
        found = image_folder.labelled_truth(path, Path(scratch), intake.bands)
        _check_known(task, path, {one.label for one in found.listed}, known)
        for one in found.listed:
            try:
                chips.append(intake(image_folder.read(found, one.path)))
            except ValueError as error:
                reason = str(error).removeprefix(f"{found.shown / one.path}: ")
                left_out.append((one.path, reason))
            else:
                names.append(one.label)
    if not known & set(names):
        first = next(iter(left_out))
        raise ValueError(f"{path}: no image of a known class can be used ({first[0]}: {first[1]})")
    if left_out:
        _warn(path, left_out, len(found.listed))
    return _made(task, np.stack(chips), names, str(path), left_out)


def read_tracks(task: OfTracks, source: str | os.PathLike) -> LabelledSet:
    """Reads the tracks in class folders, each a folder of images in the order of their names.

    Of a longer track, the last images are used, as many as the network takes. Tracks with an image
    that cannot be read, or that the network does not take, are left out; a warning names them.

    Args:
      task: the run's task.
      source: the folder with the class folders.

    Raises:
      ValueError: there are no tracks, or none of a known class can be used.
    """
    path = Path(source_of(source))
    known = {*map(class_name, task.split.known)}
    found = [
        (class_name(folder.name), track)
        for folder in folders_in(path)
        for track in folders_in(folder)
    ]
    if not found:
        raise ValueError(f"{path}: there is no folder of a class that contains folders of tracks")
    _check_known(task, path, {name for name, _ in found}, known)
    intake, most = Intake.of_run(task.config, task.record), task.config.track.frames
    chips: list[np.ndarray] = []
    names: list[str] = []
    numbers: list[tuple[int, int]] = []
    left_out: list[tuple[str, str]] = []
    for number, (name, track) in enumerate(found):
        try:
            own = [intake(image) for image in read_folder(str(track))[-most:]]
        except (ValueError, OSError) as error:
            left_out.append((str(track.relative_to(path)), str(error)))
            continue
        chips += own
        names += [name] * len(own)
        numbers += [(number, frame) for frame in range(len(own))]
    if not known & set(names):
        raise ValueError(
            f"{path}: no track of a known class can be used ({': '.join(left_out[0])})"
        )
    if left_out:
        _warn(path, left_out, len(found), "tracks")
    of_track, of_frame = np.array(numbers, np.int32).T
    columns = {str(TRACK): of_track, str(FRAME): of_frame}
    return _made(task, np.stack(chips), names, str(path), left_out, columns)


def of_arrays(
    task: Measured, images: Shaped[np.ndarray, "n h w c"], names: Iterable[str]
) -> LabelledSet:
    """Makes a set of images in memory.

    Args:
      task: the run's task.
      images: ``[n, h, w, c]``.
      names: names of their classes.

    Raises:
      ValueError: the network does not take the images.
    """
    intake = Intake.of_run(task.config, task.record)
    chips = np.stack([intake(image) for image in images])
    return _made(task, chips, [str(name) for name in names], IN_MEMORY, [])


def of(
    task: Measured, data: str | os.PathLike | tuple[Any, Any], enrolled: Collection[str] = ()
) -> LabelledSet:
    """Reads a set at a path (:func:`read`), or makes one of images and their names in memory.

    Args:
      task: the run's task.
      data: the path; or the images and the names or numbers of their classes.
      enrolled: names of further classes that the run knows.

    Raises:
      ValueError: the set cannot be read, or does not fit the run.
    """
    if isinstance(task, OfTracks):
        if isinstance(data, tuple):
            raise ValueError("data: a run on tracks is measured on folders of tracks, not arrays")
        return read_tracks(task, data)
    if isinstance(data, tuple):
        return of_arrays(task, *arrays.checked(*data))
    return read(task, data, enrolled)


def describe(result: dict[str, Any], record: Mapping[str, Any], name: str = "") -> None:
    """Adds the facts of a set, and which of its classes are unknown, to an evaluation on it.

    Args:
      result: the evaluation.
      record: :attr:`LabelledSet.record`.
      name: name under which the set is recorded.
    """
    known = set(result["known"])
    result["set"] = {"name": name, **record}
    result["unknown"] = [one for one in record["classes"] if one not in known]


def _made(
    task: Measured,
    chips: np.ndarray,
    names: list[str],
    source: str,
    left_out: list[tuple[str, str]],
    columns: Mapping[str, np.ndarray] | None = None,
) -> LabelledSet:
    content = hashlib.sha256("\0".join(names).encode())
    content.update(chips.tobytes())
    record = {
        "source": source,
        "images": len(names),
        "classes": dict(sorted(Counter(names).items())),
        "left_out": [list(one) for one in left_out],
        "fingerprint": content.hexdigest(),
    }
    return LabelledSet(part_of_chips(chips, names, task.split.known, columns), record)


def _check_known(task: Measured, path: Path, classes: set[str], known: set[str]) -> None:
    if known & classes:
        return
    outside = "outside" in inspect.signature(task.test).parameters
    other = f", or images that are all unknown as --outside=NAME={path.name}" if outside else ""
    close = next((hint for name in sorted(classes) if (hint := nearest(name, known))), "")
    raise ValueError(
        f"{path}: none of its classes is known to the run: got {_short(sorted(classes))}, wanted "
        f"at least one of {_short(sorted(known))}{other}{close}"
    )


def _warn(
    path: Path, left_out: Sequence[tuple[str, str]], count: int, what: str = "images"
) -> None:
    named = _short([f"{image}: {reason}" for image, reason in left_out], "; ")
    warnings.warn(f"{path}: skipped {len(left_out)} of {count} {what}: {named}", stacklevel=3)


def _short(texts: Sequence[str], between: str = ", ") -> str:
    more = [f"and {len(texts) - _LISTED} more"] if len(texts) > _LISTED else []
    return between.join([*texts[:_LISTED], *more])
