"""The data source of simulated radar scenes: K clutter with bright targets, and their boxes."""

import math
from collections.abc import Sequence

import numpy as np

from jaxatr.data.scene_options import SPLITS, drawn_contents
from jaxatr.data.source import (
    Example,
    Feature,
    Option,
    Request,
    Scan,
    Source,
    all_options,
    check_whole_number,
)
from jaxatr.scenes import boxes as geometry

__all__ = ["CLASSES", "PART", "scene"]

CLASSES = ("TARGET",)
_TRIES = 100  # places that are drawn for a target until it is apart from the others
_APART = 8  # pixels between two targets


def scene(
    split: str,
    number: int,
    *,
    size: int = 512,
    targets: Sequence[int] = (4, 10),
    sides: Sequence[int] = (6, 20),
    contrast: float = 8.0,
    looks: float = 1.0,
    shape: float = 0.0,
    seed: int = 0,
) -> Example:
    """Simulates a scene, drawn from (seed, split, number) alone.

    Every pixel has speckle of its own, in clutter and target. Clutter's mean intensity is 1, times
    a texture of its own in every pixel.

    Args:
      split: ``"train"`` or ``"test"``.
      number: number of the scene.
      size: side of the scene in pixels.
      targets: fewest and most targets.
      sides: shortest and longest side of a target in pixels.
      contrast: mean intensity of targets over that of clutter, in decibels.
      looks: of the speckle.
      shape: of the texture's gamma law; 0 for clutter without texture.
      seed: a non-negative integer.

    Returns:
      ``image`` float32 ``[size, size, 1]``, amplitudes; ``boxes`` float32 ``[n, 4]``, x0, y0, x1,
      y1 in pixels; ``labels`` int32 ``[n]``, 0; ``label`` 0.
    """
    rng = np.random.default_rng(np.random.SeedSequence((seed, SPLITS.index(split), number)))
    mean = np.ones((size, size)) if not shape else rng.gamma(shape, 1 / shape, (size, size))
    boxes: list[tuple[int, int, int, int]] = []
    for _ in range(int(rng.integers(targets[0], targets[1], endpoint=True))):
        for _ in range(_TRIES):
            width, height = rng.integers(sides[0], sides[1], size=2, endpoint=True).tolist()
            x, y = rng.integers(0, (size - width + 1, size - height + 1)).tolist()
            around = np.array([x - _APART, y - _APART, x + width + _APART, y + height + _APART])
            others = np.array(boxes, float).reshape(-1, 4)
            if not np.any(geometry.intersection(around.astype(float), others)):
                boxes.append((x, y, x + width, y + height))
                mean[y : y + height, x : x + width] = 10 ** (contrast / 10)
                break
    intensity = mean * rng.gamma(looks, 1 / looks, (size, size))
    return {
        "image": np.sqrt(intensity, dtype=np.float32)[:, :, None],
        "boxes": np.array(boxes, np.float32).reshape(-1, 4),
        "labels": np.zeros(len(boxes), np.int32),
        "label": 0,
    }


class SimulatedClutter(Source):
    """The source ``simulated_clutter``."""

    name = "simulated_clutter"
    version = "1.0.0"
    options = {
        "train": Option(4, "scenes of the split train"),
        "test": Option(40, "scenes of the split test"),
        "size": Option(512, "side of the scenes in pixels"),
        "targets": Option((4, 10), "fewest and most targets in a scene"),
        "sides": Option((6, 20), "shortest and longest side of a target in pixels"),
        "contrast": Option(8.0, "mean intensity of targets over that of clutter, in decibels"),
        "looks": Option(1.0, "looks of the speckle"),
        "shape": Option(0.0, "shape of the clutter's texture; 0 for none"),
        "seed": Option(0, "seed of all draws, a non-negative integer"),
    }

    def scan(self, request: Request) -> Scan:
        """Checks the options."""
        settings = all_options(self, request.options)
        for name, least in (("train", 1), ("test", 1), ("seed", 0), ("size", 1)):
            check_whole_number(name, settings[name], least=least)
        for name, least, most in (("targets", 0, 1000), ("sides", 1, settings["size"])):
            limits = settings[name]
            if len(limits) != 2 or not least <= limits[0] <= limits[1] <= most:
                raise ValueError(
                    f"{name}: got {limits}, wanted two numbers in order, {least} to {most}"
                )
        if not 0 < settings["looks"] < math.inf:
            raise ValueError(f"looks: got {settings['looks']}, wanted more than 0")
        if not 0 <= settings["shape"] < math.inf:
            raise ValueError(f"shape: got {settings['shape']}, wanted 0 (no texture) or more")
        if not math.isfinite(settings["contrast"]):
            raise ValueError(f"contrast: got {settings['contrast']}, wanted decibels")
        image = {"image": Feature(np.float32, (settings["size"], settings["size"], 1))}
        return Scan(
            self,
            settings,
            dict(settings),
            lambda _: drawn_contents(scene, CLASSES, image, settings),
        )


PART = SimulatedClutter()
