"""Survey of a clip: its usable targets, frame by frame, and the reasons why others are not."""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jaxatr.data.reasons import Reasons
from jaxatr.data.sources.dsiac.agt import AgtTarget, read_agt
from jaxatr.data.sources.dsiac.arf import Arf, open_arf
from jaxatr.data.sources.dsiac.bbox_met import Corners, read_corners
from jaxatr.data.sources.dsiac.boxes import Box, find_box
from jaxatr.data.sources.dsiac.clips import Clip
from jaxatr.data.sources.dsiac.names import FOV_DEG, SIZES_M, TARGETS, vehicle

# Tolerance: the ground truth's range may differ from the scenario's by half a step.
_RANGE_STEP_M = 500
# One frame in this many is left out between a clip's turns: a second per minute.
_GAP = 60


class Look(NamedTuple):
    """One usable target in one frame."""

    index: int  # the frame's, from 0
    ply: str
    kind: str
    turn: int
    box: Box
    aspect_deg: float
    target_range_m: float


@dataclass(frozen=True)
class Survey:
    """The usable targets of a clip.

    Attributes:
      clip: the clip.
      frames: its number of frames.
      dtype: dtype of its pixels.
      looks: the usable targets, in order of frames.
    """

    clip: Clip
    frames: int
    dtype: np.dtype
    looks: list[Look]


def turn_of(index: int, frames: int) -> int | None:
    """Returns a frame's turn, 0 or 1, or None in the gap between the turns.

    A clip of 1800 frames shows a vehicle turning twice. The last frames of the first turn, a 60th
    of the clip, are left out, because consecutive frames are nearly identical.
    """
    half = frames // 2
    if index >= half:
        return 1
    return 0 if index < half - frames // _GAP else None


def survey(
    clip: Clip, classes: tuple[str, ...], every: int, left_out: Reasons, noted: Reasons
) -> Survey | None:
    """Finds a clip's usable targets; None if it has no ground truth, or several bands.

    Args:
      clip: the clip.
      classes: the classes to keep.
      every: keep one frame in this many.
      left_out: collects data that is left out.
      noted: collects remarks about data that is used.

    Raises:
      ValueError: one of the clip's files is damaged; the message names it and the byte.
    """
    name = clip.name.text
    if clip.agt is None:
        left_out.add("clips without ground truth", name)
        return None
    arf, truth = open_arf(clip.arf), read_agt(clip.agt)
    if len(arf.bands) != 1:
        left_out.add("clips of several bands", name)
        return None
    corners = read_corners(clip.metric) if clip.metric else Corners({}, ())
    _note_problems(noted, name, "ground truth", truth.problems)
    _note_problems(noted, name, "boxes", corners.problems)
    if arf.note:
        noted.add("clips whose flags contradict their size", name, arf.note)
    frames = _renumbered(truth.frames, arf.frames, name, noted)
    sight = _Sight(clip, arf, truth.fov_deg or FOV_DEG, classes, corners, left_out, noted)
    looks = []
    for number in sorted(frames):
        if number > arf.frames:
            left_out.add("frames beyond the end of the clip", name, f"frame {number}")
        elif (number - 1) % every == 0:
            looks += sight.looks(number, frames[number])
    wanted = range(1, arf.frames + 1, every)
    without = [number for number in wanted if number not in frames]
    if without:
        left_out.add("frames without ground truth", name, f"frame {without[0]}", len(without))
    return Survey(clip, arf.frames, arf.bands[0].dtype, looks)


def _note_problems(noted: Reasons, name: str, what: str, problems: tuple[str, ...]) -> None:
    if problems:
        noted.add(f"places in the {what} that were not used", name, problems[0], len(problems))


def _renumbered(
    frames: dict[int, tuple[AgtTarget, ...]], count: int, name: str, noted: Reasons
) -> dict[int, tuple[AgtTarget, ...]]:
    """Returns the frames numbered from 1.

    In some files, according to a public reader of the database, the targets' frames continue the
    sensor's numbering, so that the first one has the clip's last number.
    """
    if max(frames) <= count or min(frames) < count or max(frames) > 2 * count - 1:
        return frames
    noted.add("clips whose targets' frames continue the sensor's numbering", name)
    return {number - count + 1: targets for number, targets in frames.items()}


@dataclass(frozen=True)
class _Sight:
    """A clip with everything needed to examine its frames."""

    clip: Clip
    arf: Arf
    fov_deg: tuple[float, float]
    classes: tuple[str, ...]
    corners: Corners
    left_out: Reasons
    noted: Reasons

    def looks(self, number: int, targets: tuple[AgtTarget, ...]) -> list[Look]:
        if not targets:
            self._skip("frames without a target", number)
            return []
        turn = turn_of(number - 1, self.arf.frames)
        if turn is None:
            self._skip("targets in the gap between the turns", number, len(targets))
            return []
        plies = Counter(target.ply for target in targets)
        found = []
        for target in targets:
            if plies[target.ply] > 1:
                self._skip("targets that share a PlyId", number)
            elif (look := self._look(number, turn, target)) is not None:
                found.append(look)
        return found

    def _look(self, number: int, turn: int, target: AgtTarget) -> Look | None:
        kind = self._kind(number, target)
        if kind is None:
            return None
        box = find_box(
            target,
            self.corners.of.get((number, target.ply or "")),
            SIZES_M.get(kind),
            range_m=float(self.clip.range_m),
            fov_deg=self.fov_deg,
            rows=self.arf.bands[0].rows,
            columns=self.arf.bands[0].columns,
        )
        if isinstance(box, str):
            self._skip(f"targets with {box}", number)
            return None
        self._note_box(number, target, box)
        aspect, distance = target.aspect_deg, target.range_m
        return Look(
            index=number - 1,
            ply=target.ply or "",
            kind=kind,
            turn=turn,
            box=box,
            aspect_deg=float("nan") if aspect is None else aspect,
            target_range_m=float("nan") if distance is None else distance,
        )

    def _kind(self, number: int, target: AgtTarget) -> str | None:
        by_name = TARGETS.get(self.clip.name.target)
        if target.kind is None:
            kind = by_name
            self._note("targets without a TgtType, classified by their clip's name", number)
        else:
            kind = vehicle(target.kind)
        if kind is None:
            self._skip(f"targets of no vehicle class, {(target.kind or '')[:40]!r}", number)
        elif kind not in self.classes:
            self._skip(f"targets of class {kind}, which was not requested", number)
        else:
            if kind != by_name:
                self._note(f"targets of class {kind} in a clip of {by_name}", number)
            return kind
        return None

    def _note_box(self, number: int, target: AgtTarget, box: Box) -> None:
        if box.source == "dimensions":
            self._note("boxes estimated from the vehicle's size, range and aspect", number)
        if box.cut:
            self._note("targets that extend beyond the frame", number)
        if target.aspect_deg is None:
            self._note("targets without an aspect", number)
        distance = self.clip.range_m if target.range_m is None else target.range_m
        if abs(distance - self.clip.range_m) > _RANGE_STEP_M / 2:
            self._note("targets at another range than their scenario's", number)

    def _skip(self, reason: str, number: int, count: int = 1) -> None:
        self.left_out.add(reason, self.clip.name.text, f"frame {number}", count)

    def _note(self, reason: str, number: int) -> None:
        self.noted.add(reason, self.clip.name.text, f"frame {number}")
