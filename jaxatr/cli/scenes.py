"""The targets of the scenes that a command's arguments name."""

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from typing import TypeVar

import numpy as np

from jaxatr import data
from jaxatr.cli.terminal import one_line
from jaxatr.data.annotations.results import CORNERS, SCORE, SceneTargets, of_scene
from jaxatr.data.images import natural_order
from jaxatr.data.scene_image import SceneImage, open_scene
from jaxatr.scenes.tracker import Tracker
from jaxatr.tasks.detection.finder import TRACK, Finder, places_of
from jaxatr.tasks.detection.recognised import Row, TrackChips

_LOW = 0.2  # share of the least score from which a target continues a track
T = TypeVar("T")


class Opened:
    """Opens scenes, and reports those that cannot be used.

    Attributes:
      failed: number of each unusable scene to its row of a table: path and error.
    """

    def __init__(self, named: str):
        """Takes the prefix of the lines on standard error, such as ``"error"``."""
        self.failed: dict[int, Row] = {}
        self._named = named

    def __call__(
        self, number: int, path: data.ImagePath, work: Callable[[SceneImage], T]
    ) -> T | None:
        """Returns a function's value for an open scene; None if the scene cannot be used."""
        try:
            if path.error is not None:
                raise path.error
            with open_scene(path.file, path.name) as scene:
                return work(scene)
        except (ValueError, OSError, ImportError) as error:
            self.failed[number] = {
                "path": path.name,
                "error": data.reason_of(error, path.name, path.file),
            }
            self.say(data.line_of(error, path.name, path.file))
            return None

    def say(self, line: str) -> None:
        """Reports something that cannot be used on standard error."""
        print(f"{self._named}: {one_line(line)}", file=sys.stderr)


def each(
    finder: Finder, paths: Iterable[data.ImagePath], opened: Opened
) -> Iterator[tuple[int, SceneTargets]]:
    """Yields the targets of each usable scene, with its number."""
    for number, path in enumerate(paths):
        found = opened(
            number, path, lambda scene, path=path: of_scene(scene, path, finder.rows(scene))
        )
        if found is not None:
            yield number, found


def tracked(
    finder: Finder, paths: Iterable[data.ImagePath], opened: Opened
) -> Iterator[tuple[int, SceneTargets]]:
    """Yields the targets of each usable frame, with tracks over the frames of each folder.

    Frames are in the natural order of their names. One that cannot be used is a frame without
    targets. The decision about a target is that about its track.
    """
    folders: dict[PurePath, list[tuple[int, data.ImagePath]]] = {}
    for number, path in enumerate(paths):
        folders.setdefault(PurePath(path.name).parent, []).append((number, path))
    first = 0
    for frames in folders.values():
        frames.sort(key=lambda frame: natural_order(frame[1].name))
        video = _Video(finder, first)
        found = [(number, video.frame(number, path, opened)) for number, path in frames]
        cells, first = video.decided(), video.end
        for number, one in found:
            if one is not None:
                rows = [{**row, **cells[int(str(row[TRACK]))]} for row in one.rows]
                yield number, one._replace(rows=rows)


class _Video:
    """The tracks of one folder's frames."""

    def __init__(self, finder: Finder, first: int):
        """Starts before the first frame; ``first`` is the number of its first track."""
        self._finder, self._first, self.end = finder, first, first
        self._tracker = Tracker()
        self._chips = None if finder.chips is None else TrackChips(finder.chips)
        self._own: dict[int, list[np.ndarray]] = {}  # the detector's probabilities

    def frame(self, number: int, path: data.ImagePath, opened: Opened) -> SceneTargets | None:
        """Takes the next frame, and returns its targets, not yet decided about."""
        found = opened(number, path, lambda scene: self._add(scene, path))
        if found is None:
            self._tracker.update(np.zeros((0, 4)))
        return found

    def _add(self, scene: SceneImage, path: data.ImagePath) -> SceneTargets:
        detector = self._finder.detector
        every = detector.detect_in(scene, least=_LOW * detector.threshold)
        tracks = self._tracker.update(every.boxes, every.scores >= detector.threshold)
        found, ids = every.some(tracks >= 0), self._first + tracks[tracks >= 0]
        self.end = max([self.end, *(ids + 1).tolist()])
        if self._chips is not None:
            self._chips.add(scene, found.boxes, ids)
        for number, one in zip(ids.tolist(), found.probabilities, strict=True):
            self._own.setdefault(number, []).append(one)
        rows = [
            place | {TRACK: number}
            for place, number in zip(places_of(scene, found), ids.tolist(), strict=True)
        ]
        return of_scene(scene, path, rows)

    def decided(self) -> dict[int, Row]:
        """Returns the cells of the decision about each track."""
        if self._chips is not None:
            decided = self._chips.decided()
            return {number: self._finder.cells(one) for number, one in decided.items()}
        means = {number: np.mean(each, axis=0) for number, each in self._own.items()}
        if not means:
            return {}
        detector, count = self._finder.detector, len(means)
        nowhere, nothing = np.zeros((count, 4)), np.zeros(count)
        rows = detector.named(nowhere, nothing, np.stack(list(means.values()))).rows()
        kept = [{n: v for n, v in row.items() if n not in (*CORNERS, SCORE)} for row in rows]
        return dict(zip(means, kept, strict=True))
