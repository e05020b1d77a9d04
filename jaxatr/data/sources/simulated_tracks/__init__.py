"""Tracks of the simulated vehicles, as a sensor sees them that closes in."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxatr.data.sources.simulated.sensor import BANDS
from jaxatr.data.sources.simulated.source import FRAMING, Simulator
from jaxatr.data.sources.simulated.views import SPLITS, VEHICLES, check_choices, rendered
from jaxatr.data.sources.simulated_tracks.tracks import MOST_FRAMES, Plan


def generate(
    split: str,
    *,
    tracks: int = 64,
    frames: Sequence[int] = (4, 8),
    starts: Sequence[int] = (3500, 5000),
    closing: int = 250,
    bands: Sequence[str] = ("visible",),
    seed: int = 0,
    size: int = 64,
    crop: str = "box",
    surround: int = 0,
    vehicles: Sequence[str] = VEHICLES,
) -> dict[str, np.ndarray]:
    """Renders tracks: a vehicle that turns by 5° from frame to frame while the sensor closes in.

    Length, first range, first aspect and the direction of the turn are drawn for each track. Test
    aspects lie half-way between the train aspects. What a track's frames share (paint, light,
    weather, temperatures, the sensor's height, the turret's pose) is drawn from (seed, split,
    vehicle, band, track), the rest (ground, bushes, place on the sensor, noise) for each frame.

    Args:
      split: ``"train"`` or ``"test"``.
      tracks: of each vehicle in each band, 1 to 1000.
      frames: the shortest and the longest track's, at most 72, a turn.
      starts: metres, between which a track's first range lies, a multiple of ``closing``.
      closing: metres from one frame to the next.
      bands: of :data:`BANDS`.
      seed: a non-negative integer.
      size: rows and columns of a chip.
      crop: ``"box"`` or ``"window"``, as of :func:`jaxatr.data.sources.simulated.render`.
      surround: chip pixels kept around the chip of a box on every side.
      vehicles: of :data:`VEHICLES`.

    Returns:
      Stacked examples, one track after the other, with the fields of
      :func:`jaxatr.data.sources.simulated.generate`. No id or
      track is in both splits.

    Raises:
      ValueError: an argument is not of those listed, or a track would come nearer than 1000 m.
    """
    check_choices("split", [split], SPLITS)
    check_choices("bands", bands, BANDS)
    check_choices("vehicles", vehicles, VEHICLES)
    if seed < 0:
        raise ValueError(f"seed: got {seed}, wanted a non-negative integer")
    plan = Plan(tracks, tuple(frames), tuple(starts), closing, seed)
    part = SPLITS.index(split)
    drawn = [
        plan.track(part, VEHICLES.index(vehicle), BANDS.index(band), number)
        for vehicle in vehicles
        for band in bands
        for number in range(tracks)
    ]
    views = [view for track in drawn for view in track.views]
    numbers = np.concatenate([np.full(len(track.views), track.number) for track in drawn])
    frame = np.concatenate([np.arange(len(track.views)) for track in drawn])
    ids = numbers * MOST_FRAMES + frame
    return rendered(views, ids, numbers, frame, size=size, crop=crop, surround=surround)


def _vehicles(settings: dict[str, Any]) -> list[dict[str, Any]]:
    del settings
    return [{"vehicles": (vehicle,)} for vehicle in VEHICLES]


SOURCE = Simulator(
    "simulated_tracks",
    "1.0.0",
    generate,
    {
        "tracks": "of each vehicle in each band and split, 1 to 1000",
        "frames": "the shortest and the longest track's, at most 72",
        "starts": "metres, between which a track's first range lies",
        "closing": "metres from one frame to the next",
        "bands": "of visible and thermal",
        "seed": "of all that is drawn, a non-negative integer",
        "size": "rows and columns of a chip",
        **FRAMING,
    },
    _vehicles,
)
