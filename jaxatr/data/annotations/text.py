"""Text files of boxes, one for each image: YOLO's and DOTA's."""

from pathlib import Path

import numpy as np
import yaml

from jaxatr.data.annotations.scene import Collector
from jaxatr.data.decoder import ImageError
from jaxatr.data.images import SUFFIXES
from jaxatr.data.scene_image import open_scene
from jaxatr.files import read_regular
from jaxatr.scenes import boxes as geometry

SUFFIX = ".txt"
_NAMES = ("classes.txt", "obj.names", "data.yaml", "dataset.yaml")
_ABOVE = 2  # folders above the one that was given in which there may be names
_HEADERS = ("imagesource:", "gsd:")


def is_list(path: Path) -> bool:
    """Whether a file is one of the classes' names instead of boxes."""
    return path.name in _NAMES


def read(path: Path, into: Collector, below: Path) -> None:
    """Reads the boxes of one file: lines of YOLO or of DOTA.

    YOLO's are a class's number, x and y of the centre, width and height as shares of the image's;
    DOTA's are x and y of four corners in pixels, a class, and perhaps 1 for a difficult target.

    Args:
      path: the file.
      into: takes the boxes.
      below: the folder that was given, which ``path`` is in.
    """
    name = str(path.relative_to(below))
    root, place = into.root.absolute(), path.absolute()
    inside = [place.relative_to(root)] if place.is_relative_to(root) else []
    image = _image(into, *inside, path.relative_to(below))
    if image is None:
        into.problem(name, f"there is no image of this name in {into.root}")
        return
    into.scene(image)
    try:
        lines = read_regular(path).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        into.problem(name, f"not a readable text file ({error})")
        return
    of_yolo: list[tuple[str, list[str]]] = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        where = f"{name}: line {number}"
        if not words or words[0].lower().startswith(_HEADERS):
            continue
        if len(words) == 9 and _is_turned_yolo(words):
            into.problem(
                where, f"got YOLO's rotated box, wanted its upright boxes, or DOTA's: {line[:60]!r}"
            )
        elif len(words) in (9, 10):
            hard = len(words) == 10 and words[9] not in ("0",)
            into.box(image, words[:8], words[8], where, difficult=hard)
        elif len(words) == 5:
            of_yolo.append((where, words))
        else:
            into.problem(
                where, f"got {len(words)} words, wanted 5 (YOLO) or 9 to 10 (DOTA): {line[:60]!r}"
            )
    if of_yolo:
        _yolo(of_yolo, image, into, below)


def _is_turned_yolo(words: list[str]) -> bool:
    """Whether a line is a class's number and four corners as shares, instead of DOTA's pixels."""
    try:
        return words[0].isdecimal() and all(-1 <= float(word) <= 2 for word in words[1:])
    except ValueError:
        return False


def _yolo(lines: list[tuple[str, list[str]]], image: str, into: Collector, below: Path) -> None:
    # The names lie beside "labels" or beside "train", which the folder given may be a part of.
    folders = (below, *list(below.absolute().parents)[:_ABOVE], into.root)
    names = next(filter(None, map(_class_names, folders)), {})
    try:
        with open_scene(into.root / image) as opened:
            sides = np.array([opened.width, opened.height] * 2)
    except (ImageError, ValueError):  # named with the scene
        return
    for where, words in lines:
        try:
            kind = int(words[0])
            shares = np.array(words[1:], float)
        except ValueError:
            into.problem(where, f"got {' '.join(words)!r}, wanted a class's number and 4 numbers")
            continue
        if names and kind not in names:
            into.problem(where, f"there is no class of number {kind}, only 0 to {max(names)}")
            continue
        corners = geometry.of_centres(shares * sides)
        into.box(image, corners.tolist(), names.get(kind, str(kind)), where)


def _class_names(folder: Path) -> dict[int, str]:
    """Reads the classes' names beside the files; empty if there are none.

    Raises:
      ValueError: the file of the names cannot be read.
    """
    path = next((path for name in _NAMES if (path := folder / name).is_file()), None)
    if path is None:
        return {}
    try:
        text = read_regular(path).decode("utf-8-sig")
        if path.suffix != ".yaml":
            return {number: one for number, one in enumerate(text.splitlines()) if one.strip()}
        found = (yaml.safe_load(text) or {}).get("names", {})
        pairs = dict(found.items() if isinstance(found, dict) else enumerate(found))
        if not all(isinstance(one, str | int | float) for one in pairs.values()):
            raise ValueError("a class's name is a list or an object")
        if not all(str(number).isdecimal() for number in pairs):
            raise ValueError(f"got {next(iter(pairs))!r}, wanted the number of a class")
        return {int(number): str(one) for number, one in pairs.items()}
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        why = " ".join(str(error).split())
        raise ValueError(f"{path}: wanted the names of classes ({why})") from error


def _image(into: Collector, *paths: Path) -> str | None:
    """Finds the image of a text file: of the same name, in ``images`` for ``labels``.

    DOTA's name for the latter is ``labelTxt``. An image at the root is taken only if no other is.
    """
    labels = ("labels", "labelTxt")
    folders: list[Path] = []
    for one in (path.parent for path in paths):
        beside = Path(*("images" if part in labels else part for part in one.parts))
        folders += [one, beside, Path("images") / one]
    for folder in [*folders, Path()]:
        for suffix in (*SUFFIXES, *map(str.upper, SUFFIXES)):
            name = folder / f"{paths[0].stem}{suffix}"
            if into.has(name.as_posix()):
                return name.as_posix()
    return None
