"""The options and parts that the sources of annotated scenes share."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr.data.annotations import AnnotatedScene, Annotations, read_annotations
from jaxatr.data.selection import holdout
from jaxatr.data.source import Flag, Option

OPTIONS = {
    "boxes": Option(
        "",
        "file or folder of the boxes; empty: the scenes' folder",
        Flag(convert=os.path.abspath),
    ),
    "bad_boxes": Option(
        "refuse",
        "refuse or skip boxes that cannot be used",
        Flag("enum", choices=("refuse", "skip")),
    ),
    "test_fraction": Option(
        0.2, "if no parts are given: share of the scenes that is used for the test"
    ),
}


def read_scenes(path: Path, settings: Mapping[str, Any]) -> Annotations:
    """Reads the boxes of scenes with a source's options."""
    boxes = Path(settings["boxes"]) if settings["boxes"] else path
    return read_annotations(path, boxes, bad_boxes=settings["bad_boxes"])


def parts_of(scenes: Sequence[AnnotatedScene], test_fraction: float) -> list[str]:
    """Returns the part of each scene; whole scenes are held out for a test if none has one."""
    if any(scene.part for scene in scenes):
        return [scene.part or "train" for scene in scenes]
    _, test = holdout(np.zeros(len(scenes), np.int32), test_fraction, seed=0)
    held = set(test.tolist())
    return ["test" if number in held else "train" for number in range(len(scenes))]
