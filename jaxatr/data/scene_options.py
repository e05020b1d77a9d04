"""The options, features and parts that the sources of scenes share."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from tqdm import tqdm

from jaxatr.data.annotations import AnnotatedScene, Annotations, read_annotations
from jaxatr.data.files_below import file_states
from jaxatr.data.selection import holdout
from jaxatr.data.source import Contents, Example, Feature, Flag, Option, Request

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

FEATURES = {
    "boxes": Feature(np.float32, (None, 4)),
    "labels": Feature(np.int32, (None,)),
    "label": Feature(np.int32),
}
"""The features of every scene beside its image."""

SPLITS = ("train", "test")
"""The splits of simulated scenes; a source has an option of each name, the number of scenes."""


def drawn_contents(
    scene: Callable[..., Example],
    classes: Sequence[str],
    features: Mapping[str, Feature],
    settings: Mapping[str, Any],
) -> Contents:
    """Returns a data set of scenes that are simulated by several threads.

    Args:
      scene: draws a scene from its split, its number and the options that are no split's.
      classes: names of the classes.
      features: the features of a scene, other than :data:`FEATURES`.
      settings: the source's options.
    """
    own = {name: value for name, value in settings.items() if name not in SPLITS}
    return Contents(
        classes=classes,
        features={**features, **FEATURES},
        splits={name: partial(_drawn, scene, name, settings[name], own) for name in SPLITS},
        total=sum(settings[name] for name in SPLITS),
    )


def _drawn(
    scene: Callable[..., Example], split: str, count: int, own: Mapping[str, Any]
) -> Iterator[Example]:
    with (
        ThreadPoolExecutor(os.cpu_count()) as pool,
        tqdm(desc="simulating", unit="scene", leave=False, total=count, disable=None) as bar,
    ):
        for one in pool.map(lambda number: scene(split, number, **own), range(count)):
            bar.update()
            yield one


def read_scenes(path: Path, settings: Mapping[str, Any]) -> Annotations:
    """Reads the boxes of scenes with a source's options."""
    boxes = Path(settings["boxes"]) if settings["boxes"] else path
    return read_annotations(path, boxes, bad_boxes=settings["bad_boxes"])


def state_of(found: Annotations, root: Path, settings: Mapping[str, Any]) -> Any:
    """Returns the facts that a prepared set depends on: boxes, files, and the source's options."""
    scenes = []
    for scene in found.scenes:
        first, *more = scene.files(root)
        states = file_states(first.parent, [PurePosixPath(one.name) for one in (first, *more)])
        boxes = [scene.boxes, scene.difficult, scene.crowd]
        scenes.append(
            [scene.path, states, scene.part, list(scene.labels), *(one.tolist() for one in boxes)]
        )
    own = {name: value for name, value in settings.items() if name != "boxes"}  # they are in found
    return [own, scenes, [str(problem) for problem in found.problems]]


def skips_damaged(request: Request, settings: Mapping[str, Any]) -> bool:
    """Whether scenes that turn out to be damaged are left out, as boxes that cannot be used are."""
    return request.skip_corrupt or settings["bad_boxes"] == "skip"


def parts_of(scenes: Sequence[AnnotatedScene], test_fraction: float) -> list[str]:
    """Returns the part of each scene; whole scenes are held out for a test if none has one."""
    if any(scene.part for scene in scenes):
        return [scene.part or "train" for scene in scenes]
    _, test = holdout(np.zeros(len(scenes), np.int32), test_fraction, seed=0)
    held = set(test.tolist())
    return ["test" if number in held else "train" for number in range(len(scenes))]
