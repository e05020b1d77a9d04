"""The simulated sensor's chips as records."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

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
    arrays = {split: _rendered(split, settings) for split in simulated.SPLITS}
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


def _rendered(split: Any, settings: dict[str, Any]) -> dict[str, np.ndarray]:
    columns = simulated.generate(split, **settings)
    return {**columns, "band": np.array(simulated.BANDS)[columns["band"]]}
