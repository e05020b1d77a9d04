"""The simulated sensor as a data source."""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
from tqdm import tqdm

from jaxatr.data.source import (
    Contents,
    Example,
    Feature,
    Option,
    Request,
    Scan,
    Source,
    all_options,
)
from jaxatr.data.sources.simulated.framing import framing
from jaxatr.data.sources.simulated.sensor import BANDS
from jaxatr.data.sources.simulated.views import DECOYS, SPLITS, VEHICLES

Columns: TypeAlias = dict[str, np.ndarray]

FRAMING: Mapping[str, str] = {
    "crop": "box: the target's box and a fifth more; window: 100 sensor pixels at every range",
    "surround": "chip pixels kept around the chip of a box on every side",
}
"""The options that say what a chip shows, to their meanings."""

# Options that came later, at the values that there were before: what they gave is found again.
_ONCE = {"crop": "window", "surround": 0, "turns": 1, "decoys": 0}


class Simulator(Source):
    """A data set of the simulated sensor."""

    def __init__(
        self,
        name: str,
        version: str,
        generate: Callable[..., Columns],
        meanings: Mapping[str, str],
        parts: Callable[[dict[str, Any]], list[dict[str, Any]]],
    ):
        """Sets the renderer and its options.

        Args:
          name: of the source.
          version: raised when the same options would give other chips.
          generate: ``(split, **options) -> columns``; its defaults are the options'.
          meanings: option to its meaning.
          parts: from all options to those of each part; the parts are rendered by themselves, so
            that all cores work and progress shows.
        """
        self.name, self.version = name, version
        defaults = inspect.signature(generate).parameters
        self.options = {
            option: Option(defaults[option].default, meaning)
            for option, meaning in meanings.items()
        }
        self._generate, self._parts = generate, parts

    def scan(self, request: Request) -> Scan:
        """Takes the options; the renderer checks them."""
        settings = all_options(self, request.options)
        framing(settings["crop"], settings["size"], settings["surround"])  # refuses what is not
        state = {
            name: value for name, value in settings.items() if (name, value) not in _ONCE.items()
        }
        return Scan(self, settings, state, lambda _: self._contents(settings))

    def _contents(self, settings: dict[str, Any]) -> Contents:
        rendered = self._rendered(settings)

        def examples(columns: Columns) -> Iterator[Example]:
            for row in range(len(columns["label"])):
                yield {name: column[row] for name, column in columns.items()}

        return Contents(
            classes=VEHICLES,
            features={
                name: Feature(column.dtype, column.shape[1:])
                for name, column in rendered["train"].items()
            },
            splits={
                split: lambda columns=columns: examples(columns)
                for split, columns in rendered.items()
            },
            total=sum(len(columns["label"]) for columns in rendered.values()),
        )

    def _rendered(self, settings: dict[str, Any]) -> dict[str, Columns]:
        splits = (*SPLITS, DECOYS) if settings.get("decoys") else SPLITS
        parts = [(split, settings | part) for split in splits for part in self._parts(settings)]
        found: dict[str, list[Columns]] = {split: [] for split in splits}
        with (
            ThreadPoolExecutor(os.cpu_count()) as pool,
            tqdm(
                desc="simulating", unit="part", leave=False, total=len(parts), disable=None
            ) as bar,
        ):
            chips = pool.map(lambda part: self._generate(part[0], **part[1]), parts)
            for (split, _), columns in zip(parts, chips, strict=True):
                found[split].append(columns)
                bar.update()
        return {split: _stacked(columns) for split, columns in found.items()}


def _stacked(parts: list[Columns]) -> Columns:
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return {**columns, "band": np.array(BANDS)[columns["band"]]}
