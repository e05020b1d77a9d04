"""The data source for annotated scenes as they are, with the boxes of their targets."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from jaxatr.data import scene_options
from jaxatr.data.annotations import AnnotatedScene
from jaxatr.data.decoder import ImageError
from jaxatr.data.scene_image import read_scene
from jaxatr.data.source import (
    Contents,
    Example,
    Feature,
    Request,
    Scan,
    Source,
    all_options,
)

NOTHING = -1
"""Label of a region in which nothing counts: a crowd, DontCare, a difficult target."""


class WholeScenes(Source):
    """Scenes of any size, each with ``boxes`` and ``labels``, for a detector."""

    name = "whole_scenes"
    version = 2
    takes = "the folder of the scenes"
    any_data = True
    options = scene_options.OPTIONS

    def scan(self, request: Request) -> Scan:
        """Reads the boxes, and the sizes of the scenes."""
        settings = all_options(self, request.options)
        if not 0 < settings["test_fraction"] < 1:
            raise ValueError(
                f"test_fraction: got {settings['test_fraction']}, wanted a share between 0 and 1"
            )
        found = scene_options.read_scenes(request.path, settings)
        root = request.path if request.path.is_dir() else request.path.parent
        skipped = [(problem.where, problem.why) for problem in found.problems]
        parts = scene_options.parts_of(found.scenes, settings["test_fraction"])
        skips = scene_options.skips_damaged(request, settings)
        state = scene_options.state_of(found, root, settings)

        def contents(_: Path) -> Contents:
            return _contents(root, found.scenes, parts, skipped, skips)

        return Scan(self, settings, state, contents, skips)


PART = WholeScenes()


def _contents(
    root: Path,
    scenes: Sequence[AnnotatedScene],
    parts: Sequence[str],
    skipped: list[tuple[str, str]],
    skip_corrupt: bool,
) -> Contents:
    classes = sorted({name for scene in scenes for name in _names(scene) if name is not None})
    if not classes:
        raise ValueError(f"{root}: no scene has a target with a class")
    dtype = _dtype(root, scenes, skip_corrupt)
    numbers = {name: number for number, name in enumerate(classes)}

    def examples(own: list[AnnotatedScene], number: int) -> Iterator[Example]:
        for scene in own:
            try:
                image = read_scene(root / scene.path, scene.path)
            except ImageError as error:
                if not skip_corrupt:
                    raise ImageError(f"{error}; --bad_boxes=skip leaves it out") from error
                skipped.append((scene.path, str(error).removeprefix(f"{scene.path}: ")))
                continue
            if image.dtype != dtype:
                raise ValueError(
                    f"{scene.path} is {image.dtype} and others are {dtype}, but a data set has one "
                    "dtype: convert the scenes"
                )
            labels = [NOTHING if name is None else numbers[name] for name in _names(scene)]
            yield {
                "image": image,
                "boxes": scene.boxes.astype(np.float32),
                "labels": np.array(labels, np.int32),
                "label": 0,
                "id": number,
                "path": scene.path,
            }
            number += 1

    splits, total = {}, 0
    for part in sorted(set(parts)):
        own = [scene for scene, one in zip(scenes, parts, strict=True) if one == part]
        splits[part] = lambda own=own, start=total: examples(own, start)
        total += len(own)
    return Contents(
        classes=classes,
        features={
            "image": Feature(dtype, (None, None, None)),
            **scene_options.FEATURES,
            "id": Feature(np.int32),
            "path": Feature(str),
        },
        splits=splits,
        total=total,
        skipped=skipped,
    )


def _names(scene: AnnotatedScene) -> list[str | None]:
    """Returns the class of each box; None for a region in which nothing counts."""
    nothing = scene.crowd | scene.difficult
    return [
        None if ignored or not name else name
        for name, ignored in zip(scene.labels, nothing, strict=True)
    ]


def _dtype(root: Path, scenes: Sequence[AnnotatedScene], skip_corrupt: bool) -> np.dtype:
    reason: ImageError | None = None
    for scene in scenes:
        try:
            return read_scene(root / scene.path, scene.path).dtype
        except ImageError as error:
            reason = reason or error
            if not skip_corrupt:
                break
    raise reason or ImageError(f"{root}: there is no scene")
