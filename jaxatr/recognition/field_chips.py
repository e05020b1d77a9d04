"""Field chips of a run, with or without labels: their files, network outputs and facts."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxatr import openset
from jaxatr.data import archive, class_name, image_facts, image_paths, line_of
from jaxatr.files import MissingFileError, Scratch
from jaxatr.recognition import enrolment_file
from jaxatr.recognition.predictor import OpenSetPredictor
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.tasks.image_facts import by_name


class Item(NamedTuple):
    """A chip, or the folder of a track.

    Attributes:
      name: its name, whose first or last folder is usually the class.
      path: the file or the folder.
      label: name of its class; empty without labels.
    """

    name: str
    path: Path
    label: str = ""


class Chips(NamedTuple):
    """A network's outputs for field chips.

    Attributes:
      outputs: outputs of the network, with the chips' classes as labels if they have any.
      counts: number of chips of each class, by name; empty without labels.
      digest: SHA-256 of the names and contents of the chips' files.
      facts: facts of the chips as images, by name; empty for tracks.
      enrolled: SHA-256 of the enrolled chips that the decision compares with.
    """

    outputs: openset.Outputs
    counts: dict[str, int]
    digest: str
    facts: dict[str, list[float]]
    enrolled: list[str]


def read_labelled(recogniser: OpenSetPredictor, source: str | os.PathLike) -> Chips:
    """Reads labelled chips of known classes, and applies the network to them.

    Args:
      recogniser: the run's recogniser.
      source: a folder, a table or an archive; for tracks, a folder of class folders that contain
        one folder per track.

    Raises:
      ValueError: a class is not known, there are no chips, or a chip is invalid or enrolled.
    """
    with (
        Scratch() as scratch,
        archive.naming(Path(scratch), Path(source)),
    ):
        items = _labelled(recogniser, Path(source), Path(scratch))
        chips = _processed(recogniser, items)
    labels = [recogniser.classes.index(one.label) for one in items]
    counts = {recogniser.classes[c]: labels.count(c) for c in dict.fromkeys(labels)}
    return chips._replace(outputs=chips.outputs._replace(labels=np.array(labels)), counts=counts)


def read_unlabelled(recogniser: OpenSetPredictor, source: str | os.PathLike) -> Chips:
    """Reads chips without labels, and applies the network to them.

    Args:
      recogniser: the run's recogniser.
      source: a folder, a table or an archive; for tracks, a folder that contains one folder per
        track.

    Raises:
      ValueError: there are no chips, or a chip is invalid.
    """
    with Scratch() as scratch:
        return _processed(recogniser, _unlabelled(recogniser, Path(source), Path(scratch)))


def _processed(recogniser: OpenSetPredictor, items: Sequence[Item]) -> Chips:
    """Reads chips or tracks and applies the network to them."""
    facts: list[np.ndarray] = []
    enrolled = _enrolled(recogniser)

    def read() -> Iterator[np.ndarray]:
        for one in items:
            item = _read(recogniser, one)
            if isinstance(recogniser, Recogniser):
                facts.append(image_facts(item))
                if enrolled and (name := enrolled.get(enrolment_file.checksum(item))):
                    # It would be compared with itself, and every threshold would be too strict.
                    raise ValueError(f"{one.path}: is enrolled as {name}, wanted other chips")
            yield item

    outputs = openset.concatenated(list(recogniser.outputs(read())))
    named = {name: values.tolist() for name, values in by_name(facts).items()} if facts else {}
    return Chips(outputs, {}, digest_of(items), named, sorted(enrolled))


def _unlabelled(recogniser: OpenSetPredictor, source: Path, scratch: Path) -> list[Item]:
    """Lists the chips or tracks at a path.

    Raises:
      ValueError: there are none, or a file cannot be unpacked.
    """
    if isinstance(recogniser, Recogniser):
        listed = []
        for one in image_paths(str(source), str(scratch), recogniser.bands).images:
            if one.error is not None:
                raise ValueError(line_of(one.error, one.name, one.file)) from one.error
            listed.append(Item(one.name, Path(one.file)))
    else:
        listed = [Item(path.name, path) for path in folders_in(source)]
    if not listed:
        raise ValueError(f"{source}: there are no chips")
    return listed


def _labelled(recogniser: OpenSetPredictor, source: Path, scratch: Path) -> list[Item]:
    """Lists the chips or tracks at a path, with names of known classes."""
    if isinstance(recogniser, Recogniser):
        from jaxatr.data.sources.image_folder import labelled_truth  # not for other commands

        found = labelled_truth(source, scratch, recogniser.bands)
        listed = [Item(one.path, found.root / one.path, one.label) for one in found.listed]
    else:
        listed = [
            Item(str(path.relative_to(source)), path, class_name(folder.name))
            for folder in folders_in(source)
            for path in _visible(folder)
        ]
    if not listed:
        raise ValueError(f"{source}: there is no folder of a class that contains tracks")
    for one in listed:
        if one.label not in recogniser.classes:
            raise ValueError(
                f"{one.path}: got the class {one.label!r}, wanted known classes, "
                f"{', '.join(recogniser.classes)}"
            )
    return listed


def _enrolled(recogniser: OpenSetPredictor) -> dict[str, str]:
    """Returns the classes of the enrolled chips that the decision compares with, by checksum."""
    compared = recogniser.decision.further is not None
    found = enrolment_file.read(recogniser.workdir) if compared else None
    entries = found.entries if found else ()
    return {checksum: entry.name for entry in entries for checksum in entry.sha256}


def _read(recogniser: OpenSetPredictor, one: Item) -> np.ndarray:
    """Reads and prepares a chip or a track, and names it in errors."""
    try:
        return recogniser.prepare(recogniser.read(str(one.path)))
    except (ValueError, OSError) as error:
        raise ValueError(line_of(error, str(one.path))) from error


def folders_in(folder: Path) -> list[Path]:
    """Lists the visible folders in a folder, by name.

    Raises:
      ValueError: there is no such folder.
    """
    return [path for path in _visible(folder) if path.is_dir()]


def _visible(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise MissingFileError(f"source: there is no folder {folder}")
    return sorted(path for path in folder.iterdir() if path.name[0] != ".")


def digest_of(items: Sequence[Item]) -> str:
    """Computes the SHA-256 of the names and contents of the files of chips or tracks."""
    sha256 = hashlib.sha256()
    for one in items:
        files = _visible(one.path) if one.path.is_dir() else [one.path]
        for file in files:
            name = Path(one.name, file.relative_to(one.path))
            sha256.update(f"{name}\n".encode())
            sha256.update(file.read_bytes())
    return sha256.hexdigest()
