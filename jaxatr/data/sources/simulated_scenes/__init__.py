"""The data source of simulated scenes: frames with several vehicles and decoys, and their boxes."""

from collections.abc import Sequence

import numpy as np

from jaxatr.data.scene_options import drawn_contents
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
from jaxatr.data.sources.simulated.decoys import decoy
from jaxatr.data.sources.simulated.sensor import BANDS
from jaxatr.data.sources.simulated.vehicles import FLEET
from jaxatr.data.sources.simulated.views import RANGES_M, SPLITS, VEHICLES, check_choices
from jaxatr.data.sources.simulated_scenes.frames import COLUMNS, ROWS, Frame, render_frame

__all__ = ["CLASSES", "COLUMNS", "DECOY", "ROWS", "PART", "Frame", "render_frame", "scene"]

DECOY = "DECOY"
"""The class of random vehicles that are none of the eight."""
CLASSES: tuple[str, ...] = (*VEHICLES, DECOY)
FEATURES = {
    "image": Feature(np.uint8, (ROWS, COLUMNS, 1)),
    "ranges": Feature(np.float32, (None,)),
    "range_m": Feature(np.int32),
    "band": Feature(str),
}
"""The features of a scene beside its boxes."""
_DECOYS = 100_000  # decoys of a set; a vehicle of a test frame is not in a training frame


def scene(
    split: str,
    number: int,
    *,
    ranges: Sequence[int] = (1000, 2000, 3000),
    bands: Sequence[str] = BANDS,
    targets: Sequence[int] = (2, 6),
    decoys: Sequence[int] = (0, 2),
    empty: float = 0.1,
    seed: int = 0,
) -> Example:
    """Renders a scene, drawn from (seed, split, number) alone.

    Args:
      split: ``"train"`` or ``"test"``.
      number: number of the scene; ranges and bands take turns.
      ranges: metres to the centre of the frame, some of :data:`RANGES_M`.
      bands: some of :data:`BANDS`.
      targets: fewest and most vehicles of the eight.
      decoys: fewest and most decoys.
      empty: share of scenes without any vehicle.
      seed: a non-negative integer.

    Returns:
      ``image`` uint8 ``[512, 640, 1]``; ``boxes`` float32 ``[n, 4]``, x0, y0, x1, y1 in pixels;
      ``labels`` int32 ``[n]``, indices into :data:`CLASSES`; ``ranges`` float32 ``[n]``, metres to
      each; ``range_m``, metres to the centre of the frame; ``band``; ``label`` 0.
    """
    part = SPLITS.index(split)
    rng = np.random.default_rng(np.random.SeedSequence((seed, part, number, 0)))
    range_m = ranges[number % len(ranges)]
    band = bands[number // len(ranges) % len(bands)]
    labels: list[int] = []
    if rng.random() >= empty:
        labels += rng.integers(
            len(FLEET), size=rng.integers(targets[0], targets[1], endpoint=True)
        ).tolist()
        labels += [len(FLEET)] * int(rng.integers(decoys[0], decoys[1], endpoint=True))
    first = (part * _DECOYS + number * decoys[1]) if labels else 0
    vehicles = [
        FLEET[label] if label < len(FLEET) else decoy(first + place, seed)
        for place, label in enumerate(labels)
    ]
    order = rng.permutation(len(labels))
    frame = render_frame(
        [vehicles[i] for i in order], float(range_m), band, (seed, part, number, 1)
    )
    return {
        "image": frame.image,
        "boxes": frame.boxes,
        "labels": np.array(labels, np.int32)[order][frame.placed],
        "ranges": frame.ranges,
        "range_m": range_m,
        "band": band,
        "label": 0,
    }


class SimulatedScenes(Source):
    """The source ``simulated_scenes``."""

    name = "simulated_scenes"
    version = "1.0.0"
    options = {
        "train": Option(300, "scenes of the split train"),
        "test": Option(120, "scenes of the split test"),
        "ranges": Option(
            (1000, 2000, 3000), "metres to the centre of the frames, which take turns"
        ),
        "bands": Option(BANDS, "visible, thermal or both, which take turns"),
        "targets": Option((2, 6), "fewest and most of the eight vehicles in a scene"),
        "decoys": Option((0, 2), "fewest and most random vehicles of no class in a scene"),
        "empty": Option(0.1, "share of scenes without any vehicle"),
        "seed": Option(0, "seed of all draws, a non-negative integer"),
    }

    def scan(self, request: Request) -> Scan:
        """Checks the options."""
        settings = all_options(self, request.options)
        for name, least in (("train", 1), ("test", 1), ("seed", 0)):
            check_whole_number(name, settings[name], least=least)
        check_choices("ranges", settings["ranges"], RANGES_M)
        check_choices("bands", settings["bands"], BANDS)
        for name in ("targets", "decoys"):
            limits = settings[name]
            if len(limits) != 2 or not 0 <= limits[0] <= limits[1] <= 20:
                raise ValueError(f"{name}: got {limits}, wanted the fewest and the most, 0 to 20")
        if not 0 <= settings["empty"] <= 1:
            raise ValueError(f"empty: got {settings['empty']}, wanted a share in [0, 1]")
        return Scan(
            self,
            settings,
            dict(settings),
            lambda _: drawn_contents(scene, CLASSES, FEATURES, settings),
        )


PART = SimulatedScenes()
