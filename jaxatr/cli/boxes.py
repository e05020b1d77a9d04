"""The chips of boxes in scenes, as inputs of a command."""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr import data
from jaxatr.cli import inputs
from jaxatr.cli.terminal import grouped, one_line
from jaxatr.data.annotations import read_annotations
from jaxatr.data.scene_image import open_scene
from jaxatr.data.sources.scenes import Framing
from jaxatr.recognition.sightings import source_of


class BoxInputs:
    """The chips of boxes in scenes, cut out one after another.

    Attributes:
      used: queue of (number, scene) of the boxes that were yielded; the consumer removes them.
      failed: number of each unusable box or scene to its row of a table: path and error.
      facts: number of each box that was yielded to its corners in pixels of the scene.
      sources: number of each box to the source that it is counted under, the scenes.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        boxes: str,
        *,
        framing: Framing,
        prepare: Callable[[Any], Any],
        named: str = "error",
    ):
        """Reads nothing yet.

        Args:
          arguments: the folder of the scenes, or one scene.
          boxes: file or folder of the boxes.
          framing: how chips are cut.
          prepare: converts a chip to the network's; raises ``ValueError`` for an unusable one.
          named: prefix of the line on standard error about an unusable box.
        """
        given = inputs.only(arguments, "one folder of scenes, or one scene")
        self._scenes, self._source = Path(given), source_of(given)
        self._boxes, self._framing = Path(boxes), framing
        self._prepare, self._named = prepare, named
        self.used: deque[tuple[int, data.ImagePath]] = deque()
        self.failed: dict[int, dict[str, data.Cell]] = {}
        self.facts: dict[int, dict[str, data.Cell]] = {}
        self.sources: dict[int, str] = {}

    def __iter__(self) -> Iterator[Any]:
        """Yields the usable chips, prepared; reports each unusable box on standard error."""
        found = read_annotations(self._scenes, self._boxes, bad_boxes="skip")
        root = self._scenes if self._scenes.is_dir() else self._scenes.parent
        number = 0
        for scene in found.scenes:
            file = str(root / scene.path)
            faults: list[tuple[str, str]] = []
            with open_scene(file, scene.path) as image:
                for box, corners in enumerate(scene.boxes):
                    if scene.crowd[box]:
                        continue
                    number += 1
                    self.sources[number] = self._source
                    try:
                        chip = self._prepare(self._framing.chip(image, corners)[0])
                    except ValueError as error:
                        why = str(error).removeprefix(f"{scene.path}: ")
                        faults.append((f"{scene.where[box]} ({scene.path})", why))
                        self._fail(number, scene.path, why, corners)
                        continue
                    below = f"{Path(scene.path).with_suffix('')}_{box:04}.png"
                    self.facts[number] = _corners(corners)
                    self.used.append((number, data.ImagePath(scene.path, file, below)))
                    yield chip
            self._say(grouped(faults))
        for problem in found.problems:
            number += 1
            self.sources[number] = self._source
            self._fail(number, problem.where, problem.why, None)
        self._say(map(str, found.problems))

    def _say(self, lines: Iterable[str]) -> None:
        for line in lines:
            print(f"{self._named}: {one_line(line)}", file=sys.stderr)

    def _fail(self, number: int, path: str, why: str, corners: np.ndarray | None) -> None:
        facts = {} if corners is None else _corners(corners)
        self.failed[number] = {"path": path, "error": why} | facts


def _corners(box: np.ndarray) -> dict[str, data.Cell]:
    return dict(zip(("x0", "y0", "x1", "y1"), box.tolist(), strict=True))
