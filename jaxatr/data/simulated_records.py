"""The simulated sensor's chips as records."""

import inspect
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from tqdm import tqdm

from jaxatr.data import records, simulated

Columns: TypeAlias = dict[str, np.ndarray]


class Kind(NamedTuple):
    """A data set of the simulated sensor.

    Attributes:
      version: raised when the same options would give other chips.
      generate: ``(split, **options) -> columns``.
      options: name to default.
      pieces: from the options to those of its parts, which are rendered each by itself, so that all
        cores work and progress shows.
    """

    version: str
    generate: Callable[..., Columns]
    options: dict[str, Any]
    pieces: Callable[[dict[str, Any]], list[dict[str, Any]]]


def _defaults(generate: Callable[..., Columns]) -> dict[str, Any]:
    """Returns the renderer's own, so that they are written in one place."""
    parameters = inspect.signature(generate).parameters
    return {
        name: parameter.default
        for name, parameter in parameters.items()
        if name not in ("split", "vehicles")  # a data set always has all of them
    }


def _bands_at_ranges(settings: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"ranges": (metres,), "bands": (band,)}
        for metres in settings["ranges"]
        for band in settings["bands"]
    ]


def _vehicles(settings: dict[str, Any]) -> list[dict[str, Any]]:
    del settings
    return [{"vehicles": (vehicle,)} for vehicle in simulated.VEHICLES]


KINDS = {
    "simulated": Kind(
        simulated.VERSION, simulated.generate, _defaults(simulated.generate), _bands_at_ranges
    ),
    "simulated_tracks": Kind(
        simulated.TRACKS_VERSION,
        simulated.generate_tracks,
        _defaults(simulated.generate_tracks),
        _vehicles,
    ),
}
"""The data sets by name: single views, and tracks."""


def write(name: str, directory: Path, settings: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """Renders both splits, writes them, and returns where they lie and what is known of them."""
    arrays = _rendered(KINDS[name], settings)
    features = {
        name: records.scalar(column.dtype)
        if column.ndim == 1
        else records.tensor(column.shape[1:], column.dtype)
        for name, column in arrays["train"].items()
    }

    def examples(columns: Columns) -> Iterator[records.Example]:
        for row in range(len(columns["label"])):
            yield {name: column[row] for name, column in columns.items()}

    splits = {split: lambda columns=columns: examples(columns) for split, columns in arrays.items()}
    total = sum(len(columns["label"]) for columns in arrays.values())
    facts = {
        "classes": simulated.VEHICLES,
        "coarse_classes": None,
        "fine_to_coarse": None,
        "settings": settings,
        "keys": {name: name for name in features},
    }
    return records.write(splits, features, directory, total), facts


def _rendered(kind: Kind, settings: dict[str, Any]) -> dict[str, Columns]:
    pieces = [
        (split, settings | piece) for split in simulated.SPLITS for piece in kind.pieces(settings)
    ]
    rendered: dict[str, list[Columns]] = {split: [] for split in simulated.SPLITS}
    with (
        ThreadPoolExecutor(os.cpu_count()) as pool,
        tqdm(desc="simulating", unit="part", leave=False, total=len(pieces), disable=None) as bar,
    ):
        chips = pool.map(lambda piece: kind.generate(piece[0], **piece[1]), pieces)
        for (split, _), columns in zip(pieces, chips, strict=True):
            rendered[split].append(columns)
            bar.update()
    return {split: _joined(columns) for split, columns in rendered.items()}


def _joined(pieces: list[Columns]) -> Columns:
    columns = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    return {**columns, "band": np.array(simulated.BANDS)[columns["band"]]}
