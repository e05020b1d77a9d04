"""A check of the boxes of scenes before a training: their sizes, and faults."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxatr.data.annotations.scene import AnnotatedScene, Annotations
from jaxatr.data.doctor import Finding
from jaxatr.scenes import boxes as geometry
from jaxatr.typing import Float

SMALL = 8
"""Pixels of a longer side below which a target is hard to find."""

_FEW = 10
_SAME = 0.9  # IoU of boxes of one target
_NAMED = 3


class Sizes(NamedTuple):
    """The boxes of one class.

    Attributes:
      counts: part to number of boxes.
      sides: 5, 50 and 95 % quantiles of the longer sides in pixels.
    """

    counts: Counter[str]
    sides: Float[np.ndarray, " 3"]


def sizes(found: Annotations) -> dict[str, Sizes]:
    """Counts and measures the boxes of each class, without those in which nothing counts."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    sides: dict[str, list[float]] = defaultdict(list)
    for scene in found.scenes:
        for box in np.flatnonzero(~scene.crowd):
            counts[scene.labels[box]][scene.part or "all"] += 1
            sides[scene.labels[box]].append(_longer(scene.boxes[box]))
    return {
        label: Sizes(counts[label], np.quantile(sides[label], (0.05, 0.5, 0.95)))
        for label in sorted(counts)
    }


def examine(found: Annotations, root: Path) -> list[Finding]:
    """Returns the faults of boxes, in order of severity.

    Args:
      found: the boxes.
      root: folder of the scenes, whose files are compared byte by byte.
    """
    return [
        *_unusable(found),
        *_in_two_parts(found, root),
        *_twice(found),
        *_few(found),
        *_cut(found),
        *_small(found),
        *_empty(found),
    ]


def _unusable(found: Annotations) -> list[Finding]:
    if not found.problems:
        return []
    text = f"{_counted(len(found.problems), 'annotation')} cannot be used: "
    remedy = "mend them, or leave them out by --bad_boxes=skip"
    return [Finding("error", text + _first(map(str, found.problems), len(found.problems)), remedy)]


def _in_two_parts(found: Annotations, root: Path) -> list[Finding]:
    """Finds equal files in different parts; only files of equal sizes are read."""
    by_size: dict[tuple[int, ...], list[AnnotatedScene]] = defaultdict(list)
    for scene in found.scenes:
        by_size[tuple(one.stat().st_size for one in scene.files(root))].append(scene)
    same: dict[bytes, list[AnnotatedScene]] = defaultdict(list)
    for scenes in by_size.values():
        if len(_parts(scenes)) > 1:
            for scene in scenes:
                digests = b""
                for one in scene.files(root):
                    with open(one, "rb") as file:
                        digests += hashlib.file_digest(file, "sha256").digest()
                same[digests].append(scene)
    shared = [
        " = ".join(scene.path for scene in scenes)
        for scenes in same.values()
        if len(_parts(scenes)) > 1
    ]
    if not shared:
        return []
    text = f"{_counted(len(shared), 'scene')} in two parts: {_first(shared, len(shared))}"
    return [Finding("error", text, "leave it in one of them, or figures of the test are too good")]


def _parts(scenes: Iterable[AnnotatedScene]) -> set[str]:
    return {scene.part or "train" for scene in scenes}


def _twice(found: Annotations) -> list[Finding]:
    same, other = [], []
    for scene in found.scenes:
        use = np.flatnonzero(~scene.crowd)
        overlaps = geometry.iou(scene.boxes[use][:, None], scene.boxes[use])
        for one, two in np.argwhere(np.triu(overlaps >= _SAME, 1)):
            alike = scene.labels[use[one]] == scene.labels[use[two]]
            (same if alike else other).append(f"{scene.path} ({scene.where[use[two]]})")
    findings = []
    for places, what in ((same, "drawn twice"), (other, "of two classes")):
        if places:
            text = f"{_counted(len(places), 'target')} {what}: {_first(places, len(places))}"
            findings.append(Finding("warning", text, "keep one of the boxes"))
    return findings


def _few(found: Annotations) -> list[Finding]:
    few = [
        f"{label or 'no class'} ({total})"
        for label, one in sizes(found).items()
        if (total := sum(one.counts.values())) < _FEW
    ]
    return [Finding("warning", f"fewer than {_FEW} boxes: {', '.join(few)}")] if few else []


def _cut(found: Annotations) -> list[Finding]:
    places = [
        f"{scene.path} ({scene.where[box]})"
        for scene in found.scenes
        for box in np.flatnonzero(scene.cut)
    ]
    if not places:
        return []
    count = _counted(len(places), "box", "boxes")
    text = f"{count} beyond the image, clipped: {_first(places, len(places))}"
    return [Finding("note", text)]


def _small(found: Annotations) -> list[Finding]:
    sides = [_longer(s.boxes[box]) for s in found.scenes for box in s.targets]
    few = sum(side < SMALL for side in sides)
    text = f"{few} of {len(sides)} targets are shorter than {SMALL} pixels"
    return [Finding("note", text)] if few else []


def _empty(found: Annotations) -> list[Finding]:
    count = sum(not len(scene.targets) for scene in found.scenes)
    text = f"{count} of {len(found.scenes)} scenes have no target"
    return [Finding("note", text)] if count else []


def _longer(box: Float[np.ndarray, " 4"]) -> float:
    return float(np.max(box[2:] - box[:2]))


def _counted(count: int, one: str, more: str = "") -> str:
    return f"{count} {one if count == 1 else more or one + 's'}"


def _first(places: Iterable[str], count: int) -> str:
    named = [place for place, _ in zip(places, range(_NAMED), strict=False)]
    more = count - len(named)
    return "; ".join([*named, *([f"and {more} more"] if more else [])])
