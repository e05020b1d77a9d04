"""Scenes with the boxes of their targets, as every reader of annotations returns them."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from jaxatr.data.bands import PLAIN
from jaxatr.data.class_names import class_name
from jaxatr.data.decoder import ImageError
from jaxatr.data.scene_image import open_scene
from jaxatr.files import in_any_form, in_other_form
from jaxatr.scenes import boxes as geometry
from jaxatr.typing import Bool, Float, Shaped

IGNORED = ("DontCare", "ignored regions")
"""Classes whose boxes are regions in which nothing counts."""

PARTS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


class BoxProblem(NamedTuple):
    """An annotation that cannot be used.

    Attributes:
      where: its file and place.
      why: the reason.
    """

    where: str
    why: str

    def __str__(self) -> str:
        """Returns a line of text."""
        return f"{self.where}: {self.why}"


class AnnotatedScene(NamedTuple):
    """An image with boxes.

    Attributes:
      path: of the image, relative to the scenes' folder.
      size: height and width in pixels.
      boxes: ``[n, 4]``: x0, y0, x1, y1 in pixels, within the image.
      labels: ``[n]``, class names; empty text where none is given.
      difficult: ``[n]``, targets that may be missed, such as barely visible ones.
      crowd: ``[n]``, regions in which nothing counts: crowds, DontCare.
      cut: ``[n]``, boxes that extended beyond the image, and were clipped.
      where: ``[n]``, place of each in its file.
      part: ``train``, ``val``, ``test``; empty where none is given.
    """

    path: str
    size: tuple[int, int]
    boxes: Float[np.ndarray, "n 4"]
    labels: tuple[str, ...]
    difficult: Bool[np.ndarray, " n"]
    crowd: Bool[np.ndarray, " n"]
    cut: Bool[np.ndarray, " n"]
    where: tuple[str, ...]
    part: str = ""

    @property
    def targets(self) -> np.ndarray:
        """Numbers of the boxes that are neither crowds nor difficult."""
        return np.flatnonzero(~self.crowd & ~self.difficult)

    def files(self, root: Path) -> list[Path]:
        """Returns the files that the image is read from, as they are on the disk.

        Args:
          root: the scenes' folder.
        """
        path = in_any_form(root / self.path)
        return [path, *PLAIN.files_beside(path)]


class Annotations(NamedTuple):
    """The scenes that a reader found, and its problems.

    Attributes:
      scenes: sorted by path, including those without boxes.
      problems: boxes and files that cannot be used, and are left out.
    """

    scenes: tuple[AnnotatedScene, ...]
    problems: tuple[BoxProblem, ...]


@dataclasses.dataclass
class _Given:
    """One box as it is written in a file."""

    corners: tuple[float, ...]
    label: str
    difficult: bool
    crowd: bool
    where: str


@dataclasses.dataclass
class _Scene:
    folder: str = ""
    parts: set[str] = dataclasses.field(default_factory=set)
    size: tuple[int, int] | None = None
    boxes: list[_Given] = dataclasses.field(default_factory=list)


class Collector:
    """Gathers what a reader finds, and checks it against the images.

    Attributes:
      root: folder of the images.
      problems: what cannot be used.
    """

    def __init__(self, root: Path, only: str | None = None):
        """Creates an empty collection.

        Args:
          root: folder of the images.
          only: the path of the only image whose boxes are wanted, relative to the folder.
        """
        self.root, self._only = root, only
        self.problems: list[BoxProblem] = []
        self._scenes: dict[str, _Scene] = {}

    def problem(self, where: str, why: str) -> None:
        """Records an annotation that cannot be used."""
        self.problems.append(BoxProblem(where, why))

    def is_below(self, path: str) -> bool:
        """Whether a path does not leave the root."""
        return not (PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts)

    def has(self, path: str) -> bool:
        """Whether there is a file of this path, relative to the root."""
        try:
            there = self.root / path
            return self.is_below(path) and (there.is_file() or in_other_form(there) is not None)
        except OSError:  # a name that no file can have
            return False

    def scene(self, path: str, part: str = "", size: tuple[int, int] | None = None) -> None:
        """Records an image, with or without boxes.

        Args:
          path: relative to the root.
          part: ``train``, ``val`` or ``test``; empty for that of a folder in the path, if any.
          size: height and width as stated, which are compared with the image's.
        """
        path = PurePosixPath(path).as_posix()  # ./a.png is a.png
        folders = [one.lower() for one in PurePosixPath(path).parts[:-1]]
        folders = [PARTS[one] for one in folders if one in PARTS]
        one = self._scenes.setdefault(path, _Scene(folders[0] if folders else ""))
        one.parts |= {part} - {""}
        one.size = size or one.size

    def box(
        self,
        path: str,
        corners: Sequence[object],
        label: object,
        where: str,
        *,
        difficult: bool = False,
        crowd: bool = False,
    ) -> None:
        """Records a box of an image.

        Args:
          path: of the image; it is recorded as by :meth:`scene`.
          corners: x0, y0, x1, y1, or x and y of three corners or more in turn.
          label: its class.
          where: its place, for messages.
          difficult: it may be missed.
          crowd: nothing counts in it.
        """
        path = PurePosixPath(path).as_posix()
        self.scene(path)
        try:
            numbers = tuple(float(str(one)) for one in corners)
        except ValueError:
            self.problem(where, f"got a box {list(corners)}, wanted numbers")
            return
        name = class_name(str(label))
        crowd = crowd or name in IGNORED
        self._scenes[path].boxes.append(_Given(numbers, name, difficult, crowd, where))

    def finished(self) -> Annotations:
        """Opens the images for their sizes, checks every box, and returns what can be used."""
        found = []
        for path, given in sorted(self._scenes.items()):
            if self._only not in (None, path):
                continue
            if not self.is_below(path):
                self.problem(path, f"is not below {self.root}, the folder of the scenes")
                continue
            if len(given.parts) > 1:
                self.problem(
                    path, f"is in {len(given.parts)} parts: {', '.join(sorted(given.parts))}"
                )
                continue
            try:
                with open_scene(self.root / path) as image:
                    size = (image.height, image.width)
            except (ImageError, ValueError) as error:
                self.problem(path, str(error).removeprefix(f"{self.root / path}: "))
                continue
            if given.size and given.size != size:
                stated, real = (f"{w}x{h}" for h, w in (given.size, size))
                self.problem(path, f"its annotation states {stated} pixels, but it has {real}")
                continue
            found.append(self._checked(path, given, size))
        return Annotations(tuple(found), tuple(self.problems))

    def _checked(self, path: str, given: _Scene, size: tuple[int, int]) -> AnnotatedScene:
        stay, corners, cut = [], [], []
        height, width = size
        for one in given.boxes:
            upright = _upright(one.corners)
            why = fault_of(one.corners, size)
            if why:
                self.problem(f"{one.where} ({path})", why)
                continue
            inside = geometry.clipped(upright, width, height)
            stay.append(one)
            corners.append(inside)
            cut.append(bool(np.abs(inside - upright).max() > 1))
        return AnnotatedScene(
            path,
            size,
            np.array(corners, float).reshape(-1, 4),
            tuple(one.label for one in stay),
            np.array([one.difficult for one in stay], bool),
            np.array([one.crowd for one in stay], bool),
            np.array(cut, bool),
            tuple(one.where for one in stay),
            min(given.parts, default=given.folder),
        )


def _upright(corners: tuple[float, ...]) -> Shaped[np.ndarray, " 4"]:
    """Returns the box of corners; of a polygon, the smallest around it."""
    if len(corners) == 4:
        return np.array(corners)
    return np.asarray(geometry.hull(np.reshape(corners, (-1, 2))))


def fault_of(corners: tuple[float, ...], size: tuple[int, int]) -> str | None:
    """Says why a box cannot be used; None if it can.

    Args:
      corners: x0, y0, x1, y1, or x and y of each corner of a polygon.
      size: height and width of its image.
    """
    x0, y0, x1, y1 = map(float, _upright(corners))
    shown = ", ".join(f"{value:g}" for value in corners)
    if not all(map(math.isfinite, corners)):
        return f"the box {shown} is not of finite numbers"
    if x1 < x0 or y1 < y0:
        return f"the box {shown} ends before it begins"
    if x1 == x0 or y1 == y0:
        return f"the box {shown} has no size"
    if len(corners) > 4 and geometry.polygon_area(np.reshape(corners, (-1, 2))) == 0:
        return f"the box {shown} has no area"
    height, width = size
    if x1 <= 0 or y1 <= 0 or x0 >= width or y0 >= height:
        return f"the box {shown} is outside of its image of {width}x{height} pixels"
    return None
