"""Single views of the vehicles, at every range, in every band, over a full turn.

>>> chips = generate("train", ranges=(3000,), bands=("thermal",), aspects=1)
>>> chips["image"].shape, chips["label"].tolist()
((8, 64, 64, 1), [0, 1, 2, 3, 4, 5, 6, 7])
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jaxatr.data.sources.simulated.decoys import decoy
from jaxatr.data.sources.simulated.render import View, render
from jaxatr.data.sources.simulated.sensor import BANDS
from jaxatr.data.sources.simulated.vehicles import FLEET
from jaxatr.typing import Int

VEHICLES: tuple[str, ...] = tuple(vehicle.name for vehicle in FLEET)
SPLITS: tuple[str, ...] = ("train", "test")
DECOYS = "decoys"
"""The optional split of random vehicles that belong to no class."""
RANGES_M: tuple[int, ...] = (1000, 1500, 2000, 2500, 3000, 3500, 4000, 4500, 5000)
_PLACES = (len(SPLITS), len(FLEET), len(RANGES_M), len(BANDS))
_TRACKS = int(np.prod(_PLACES))  # tracks per turn
_MOST_ASPECTS = 3600
_MOST_TURNS = 100


def generate(
    split: str,
    *,
    ranges: Sequence[int] = (1000, 2000, 3000, 4000, 5000),
    bands: Sequence[str] = BANDS,
    aspects: int = 72,
    seed: int = 0,
    size: int = 64,
    crop: str = "box",
    surround: int = 0,
    turns: int = 1,
    decoys: int = 0,
) -> dict[str, np.ndarray]:
    """Renders a split: every vehicle, range and band over a full turn, or the decoys.

    Test aspects lie half-way between the training aspects. Each view is drawn from (seed, split,
    vehicle, range, band, frame, turn) alone, so it does not depend on the other arguments.

    Args:
      split: ``"train"``, ``"test"``, or ``"decoys"``: random vehicles of no class
        (:mod:`~jaxatr.data.sources.simulated.decoys`), each once at every range and in every band.
      ranges: metres, some of :data:`RANGES_M`.
      bands: some of :data:`BANDS`.
      aspects: views per turn, 1 to 3600.
      seed: a non-negative integer.
      size: rows and columns of a chip.
      crop: ``"box"`` or ``"window"``, see :func:`render`.
      surround: chip pixels to keep around a box's chip on every side.
      turns: number of times each training view is rendered, with separate draws, 1 to 100.
      decoys: number of decoys, 0 to 3600.

    Returns:
      Stacked examples, turn by turn: ``image`` and ``mask`` [n, s, s, 1] uint8 with
      s = size + 2 · surround, ``box`` [n, 4] float32 (y0, x0, y1, x1 in chip pixels), and [n] each
      ``label`` (index into :data:`VEHICLES`, -1 for decoys), ``id``, ``range_m``, ``band`` (index
      into :data:`BANDS`), ``track`` and ``frame`` int32 and ``aspect_deg`` float32; with the crop
      by the box also ``sensor_pixels`` float32, the number of sensor pixels along the box's longer
      side. A track is one vehicle's turn at one range in one band. Ids and track numbers are unique
      over all splits.

    Raises:
      ValueError: an argument has an invalid value.
    """
    check_choices("split", [split], (*SPLITS, DECOYS))
    check_choices("ranges", ranges, RANGES_M)
    check_choices("bands", bands, BANDS)
    if not 1 <= aspects <= _MOST_ASPECTS:
        raise ValueError(f"aspects: got {aspects}, wanted 1 to {_MOST_ASPECTS}")
    if seed < 0:
        raise ValueError(f"seed: got {seed}, wanted a non-negative integer")
    if not 1 <= turns <= _MOST_TURNS:
        raise ValueError(f"turns: got {turns}, wanted 1 to {_MOST_TURNS}")
    if not 0 <= decoys <= _MOST_ASPECTS:
        raise ValueError(f"decoys: got {decoys}, wanted 0 to {_MOST_ASPECTS}")
    if split == DECOYS:
        return _decoys(ranges, bands, decoys, seed, size=size, crop=crop, surround=surround)
    turns = turns if split == "train" else 1
    views = [
        view for turn in range(turns) for view in _views(split, ranges, bands, aspects, seed, turn)
    ]
    frames = np.arange(len(views)) % aspects
    turn = np.repeat(np.arange(turns), len(views) // turns)
    tracks = np.array([_track(split, view) for view in views]) + turn * _TRACKS
    ids = tracks * _MOST_ASPECTS + frames
    return rendered(views, ids, tracks, frames, size=size, crop=crop, surround=surround)


def rendered(
    views: Sequence[View],
    ids: Int[np.ndarray, " n"],
    tracks: Int[np.ndarray, " n"],
    frames: Int[np.ndarray, " n"],
    *,
    size: int,
    crop: str,
    surround: int,
) -> dict[str, np.ndarray]:
    """Renders views with all fields of :func:`generate`.

    Args:
      views: the n views.
      ids: ``[n]``, their ids.
      tracks: ``[n]``, numbers of their tracks.
      frames: ``[n]``, their numbers within the tracks.
      size: rows and columns of a chip.
      crop: ``"box"`` or ``"window"``, see :func:`render`.
      surround: chip pixels to keep around a box's chip on every side.
    """
    examples = render(views, size, crop=crop, surround=surround) | {
        "label": np.array([view.label for view in views]),
        "id": ids,
        "range_m": np.array([view.range_m for view in views]),
        "band": np.array([view.band for view in views]),
        "track": tracks,
        "frame": frames,
    }
    for name in ("label", "id", "range_m", "band", "track", "frame"):
        examples[name] = examples[name].astype(np.int32)
    examples["aspect_deg"] = np.array([view.aspect_deg for view in views], np.float32)
    return examples


def _views(
    split: str, ranges: Sequence[int], bands: Sequence[str], aspects: int, seed: int, turn: int = 0
) -> Iterator[View]:
    part = SPLITS.index(split)
    for vehicle in range(len(FLEET)):
        for range_m in ranges:
            for band in map(BANDS.index, bands):
                for frame in range(aspects):
                    aspect = 360 * (frame + 0.5 * part) / aspects
                    entropy = (seed, part, vehicle, range_m, band, frame)
                    if turn:  # the first turn keeps the seeds of sets rendered before turns existed
                        entropy += (turn,)
                    yield View(vehicle, aspect, range_m, band, entropy)


def _decoys(
    ranges: Sequence[int], bands: Sequence[str], count: int, seed: int, **framing: Any
) -> dict[str, np.ndarray]:
    vehicles = [decoy(number, seed) for number in range(count)]
    views, frames, tracks = [], [], []
    for range_m in ranges:
        for band in map(BANDS.index, bands):
            place = np.ravel_multi_index((RANGES_M.index(range_m), band), _PLACES[2:])
            for number, vehicle in enumerate(vehicles):
                entropy = (seed, len(SPLITS), number, range_m, band)
                aspect = np.random.default_rng((*entropy, 0)).uniform(0, 360)
                views.append(View(vehicle, float(aspect), range_m, band, entropy))
                frames.append(number)
                tracks.append(_TRACKS * _MOST_TURNS + int(place))
    numbers, of_track = np.array(frames), np.array(tracks)
    ids = of_track * _MOST_ASPECTS + numbers
    return rendered(views, ids, of_track, numbers, **framing)


def _track(split: str, view: View) -> int:
    place = (SPLITS.index(split), view.label, RANGES_M.index(view.range_m), view.band)
    return int(np.ravel_multi_index(place, _PLACES))


def check_choices(name: str, got: Sequence, known: Sequence) -> None:
    """Checks that the values are some of the known ones, without repetition."""
    if not got or len(set(got)) < len(got) or not set(got) <= set(known):
        raise ValueError(f"{name}: got {list(got)}, wanted some of {list(known)}, each once")
