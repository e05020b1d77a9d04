"""The data source of simulated tracks: vehicles seen by an approaching sensor."""

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
    """Renders tracks of vehicles that turn by 5° per frame while the sensor approaches.

    The length, first range, first aspect and direction of the turn are drawn for each track. Test
    aspects lie half-way between the training aspects. Conditions shared by a track's frames (paint,
    light, weather, temperatures, the sensor's height, the turret's pose) are drawn from (seed,
    split, vehicle, band, track), all others (ground, bushes, position on the sensor, noise) per
    frame.

    Args:
      split: ``"train"`` or ``"test"``.
      tracks: number of tracks of each vehicle in each band, 1 to 1000.
      frames: the shortest and longest length of a track, at most 72, a full turn.
      starts: the least and greatest first range in metres; each one drawn is a multiple of
        ``closing``.
      closing: metres between consecutive frames.
      bands: some of :data:`BANDS`.
      seed: a non-negative integer.
      size: rows and columns of a chip.
      crop: ``"box"`` or ``"window"``, see :func:`jaxatr.data.sources.simulated.render`.
      surround: chip pixels to keep around a box's chip on every side.
      vehicles: some of :data:`VEHICLES`.

    Returns:
      Stacked examples, track by track, with the fields of
      :func:`jaxatr.data.sources.simulated.generate`. Ids and track numbers are unique over both
      splits.

    Raises:
      ValueError: an argument has an invalid value, or a track would come nearer than 1000 m.
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


PART = Simulator(
    "simulated_tracks",
    "1.0.0",
    generate,
    {
        "tracks": "tracks of each vehicle in each band and split, 1 to 1000",
        "frames": "fewest and most frames of a track, at most 72",
        "starts": "shortest and longest first range of a track, in metres",
        "closing": "metres between consecutive frames",
        "bands": "visible, thermal or both",
        "seed": "seed of all draws, a non-negative integer",
        "size": "rows and columns of a chip",
        **FRAMING,
    },
    _vehicles,
)
