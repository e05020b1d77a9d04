"""The simulated sensor's chips as records."""

import inspect
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from jaxatr.data import records, simulated

VERSION = simulated.VERSION
# The renderer's own defaults, so that they are written in one place and are part of the signature.
OPTIONS = {
    name: parameter.default
    for name, parameter in inspect.signature(simulated.generate).parameters.items()
    if name != "split"
}


def write(directory: Path, settings: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """Renders both splits, writes them, and returns where they lie and what is known of them."""
    arrays = _rendered(settings)
    features = {
        name: records.scalar(column.dtype)
        if column.ndim == 1
        else records.tensor(column.shape[1:], column.dtype)
        for name, column in arrays["train"].items()
    }

    def examples(columns: dict[str, np.ndarray]) -> Iterator[records.Example]:
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


def _rendered(settings: dict[str, Any]) -> dict[str, dict[str, np.ndarray]]:
    """Renders each band at each range by itself, so that all cores work and progress shows."""
    pieces = [
        (split, settings | {"ranges": (metres,), "bands": (band,)})
        for split in simulated.SPLITS
        for metres in settings["ranges"]
        for band in settings["bands"]
    ]
    rendered: dict[str, list[dict[str, np.ndarray]]] = {split: [] for split in simulated.SPLITS}
    with (
        ThreadPoolExecutor(os.cpu_count()) as pool,
        tqdm(desc="simulating", unit="image", leave=False, dynamic_ncols=True) as bar,
    ):
        bar.total = len(pieces) * len(simulated.VEHICLES) * settings["aspects"]
        chips = pool.map(lambda piece: simulated.generate(piece[0], **piece[1]), pieces)
        for (split, _), columns in zip(pieces, chips, strict=True):
            rendered[split].append(columns)
            bar.update(len(columns["label"]))
    return {split: _joined(columns) for split, columns in rendered.items()}


def _joined(pieces: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    columns = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    return {**columns, "band": np.array(simulated.BANDS)[columns["band"]]}
