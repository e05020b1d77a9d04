"""The data source for annotated scenes: a chip around each target's box."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxatr.data import scene_options
from jaxatr.data.annotations import AnnotatedScene, Annotations
from jaxatr.data.chip import Chip, around
from jaxatr.data.decoder import ImageError
from jaxatr.data.reasons import Reasons
from jaxatr.data.scene_image import SceneImage, open_scene
from jaxatr.data.source import (
    Contents,
    Example,
    Feature,
    Flag,
    Option,
    Request,
    Scan,
    Source,
    all_options,
)
from jaxatr.typing import Shaped


class Framing(NamedTuple):
    """How chips are cut around boxes.

    Attributes:
      margin: how much larger a chip is than its box, as a share of the box's longer side.
      square: also show surroundings on the box's shorter sides, up to a square.
      size: side to resize square chips to; 0 for the scene's own scale.
    """

    margin: float = 0.0
    square: bool = True
    size: int = 0

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> "Framing":
        """Returns the framing of the source's options; those that are missing have defaults."""
        names = ("box_margin", "square", "size")
        values = (options.get(name, ScenesSource.options[name].default) for name in names)
        margin, square, size = values
        return cls(float(margin), square, size)

    def chip(
        self, scene: SceneImage, box: Shaped[np.ndarray, " 4"]
    ) -> tuple[Shaped[np.ndarray, "h w c"], Shaped[np.ndarray, " 4"]]:
        """Cuts a chip out of a scene; beyond the scene it is 0.

        Args:
          scene: the scene.
          box: x0, y0, x1, y1.

        Returns:
          The chip, and the box in its pixels: y0, x0, y1, x1.
        """
        window = around(box, margin=self.margin, square=self.square)
        image = scene.window(*window)
        chip = Chip(size=self.size)
        inside = (np.asarray(box) - np.tile(window[:2], 2))[[1, 0, 3, 2]]
        return chip(image), chip.box(inside, image.shape)


class ScenesSource(Source):
    """Targets cut out of scenes by their boxes."""

    name = "scenes"
    version = 2
    takes = "the folder of the scenes, or one scene"
    any_data = True
    options = {
        **scene_options.OPTIONS,
        "box_margin": Option(
            0.2,
            "how much larger a chip is than its box, as a share of the longer side",
            Flag("float"),
        ),
        "square": Option(True, "cut squares, with surroundings beside the shorter side"),
        "size": Option(0, "side to resize chips to; 0: the scene's scale"),
        "difficult": Option(False, "also cut out targets that are marked as difficult"),
        "least": Option(0, "leave out boxes whose longer side is below this number of pixels"),
    }

    def scan(self, request: Request) -> Scan:
        """Reads the boxes, and the sizes of the scenes."""
        settings = all_options(self, request.options)
        for name in ("box_margin", "size", "least"):
            if settings[name] < 0:
                raise ValueError(f"{name}: got {settings[name]}, wanted 0 or more")
        found = scene_options.read_scenes(request.path, settings)
        root = request.path if request.path.is_dir() else request.path.parent
        state = scene_options.state_of(found, root, settings)
        skips = scene_options.skips_damaged(request, settings)

        def contents(_: Path) -> Contents:
            return _contents(root, found, settings, skips)

        return Scan(self, settings, state, contents, skips)


PART = ScenesSource()


def _contents(
    root: Path, found: Annotations, settings: Mapping[str, Any], skip_corrupt: bool
) -> Contents:
    framing = Framing.of_options(settings)
    left_out = Reasons()
    chosen = {scene.path: _chosen(scene, settings, left_out) for scene in found.scenes}
    classes = sorted({s.labels[box] for s in found.scenes for box in chosen[s.path]})
    if not classes:
        raise ValueError(f"{root}: no scene has a target with a class")
    parts = scene_options.parts_of(found.scenes, settings["test_fraction"])
    skipped = [(problem.where, problem.why) for problem in found.problems]
    dtype = _dtype(root, found.scenes, chosen)
    numbers = {label: number for number, label in enumerate(classes)}

    def examples(scenes: list[AnnotatedScene], number: int) -> Iterator[Example]:
        for scene in scenes:
            try:
                with open_scene(root / scene.path, scene.path) as image:
                    for box in chosen[scene.path]:
                        chip, inside = framing.chip(image, scene.boxes[box])
                        if chip.dtype != dtype:
                            raise ValueError(
                                f"{scene.path} is {chip.dtype} and others are {dtype}, but a data "
                                "set has one dtype: convert the scenes"
                            )
                        yield {
                            "image": chip,
                            "label": numbers[scene.labels[box]],
                            "id": number,
                            "path": f"{scene.path}#{box}",
                            "box": inside,
                            "cut": int(scene.cut[box]),
                        }
                        number += 1
            except ImageError as error:
                if not skip_corrupt:
                    raise ImageError(f"{error}; --bad_boxes=skip leaves it out") from error
                skipped.append((scene.path, str(error).removeprefix(f"{scene.path}: ")))

    splits, total = {}, 0
    for part in sorted(set(parts)):
        own = [scene for scene, one in zip(found.scenes, parts, strict=True) if one == part]
        count = sum(len(chosen[scene.path]) for scene in own)
        if count:
            splits[part] = lambda own=own, start=total: examples(own, start)
        total += count
    return Contents(
        classes=classes,
        features={
            "image": Feature(dtype, (None, None, None)),
            "label": Feature(np.int32),
            "id": Feature(np.int32),
            "path": Feature(str),
            "box": Feature(np.float32, (4,)),
            "cut": Feature(np.int32),
        },
        splits=splits,
        total=total,
        skipped=skipped,
        left_out=left_out,
    )


def _chosen(scene: AnnotatedScene, settings: Mapping[str, Any], left_out: Reasons) -> list[int]:
    """Returns the numbers of the boxes to cut out, and counts the others."""
    found = []
    for box, (x0, y0, x1, y1) in enumerate(scene.boxes.tolist()):
        if scene.crowd[box]:
            left_out.add("regions in which nothing counts (crowd, DontCare)", scene.path)
        elif scene.difficult[box] and not settings["difficult"]:
            left_out.add("difficult targets", scene.path)
        elif not scene.labels[box]:
            left_out.add("boxes without a class", scene.path, scene.where[box])
        elif max(x1 - x0, y1 - y0) < settings["least"]:
            left_out.add(f"boxes below {settings['least']} pixels", scene.path, scene.where[box])
        else:
            found.append(box)
    return found


def _dtype(
    root: Path, scenes: tuple[AnnotatedScene, ...], chosen: Mapping[str, list[int]]
) -> np.dtype:
    reason: ImageError | None = None
    for scene in scenes:
        if chosen[scene.path]:
            try:
                with open_scene(root / scene.path, scene.path) as image:
                    return image.window(0, 0, 1, 1).dtype
            except ImageError as error:
                reason = error
    raise reason or ImageError(f"{root}: there is no target to cut out")
