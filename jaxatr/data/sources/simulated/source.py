"""The data source for data sets rendered by the simulated sensor."""

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
    "crop": "box: the target's box enlarged by a fifth; window: 100 sensor pixels at every range",
    "surround": "further chip pixels on every side of a chip that is cut by its box",
}
"""Options of the chip's framing, with their meanings."""

# Values of later options that give the same chips as before. They are left out of the signature, so
# that sets prepared earlier are found.
_BEFORE = {"crop": "window", "surround": 0, "turns": 1, "decoys": 0}


class Simulator(Source):
    """A data source that renders its examples."""

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
          name: the source's name.
          version: increased when the same options would give other chips.
          generate: ``(split, **options) -> columns``; its defaults are those of the options.
          meanings: option names to their meanings.
          parts: divides the options among parts, which are rendered separately to use all cores
            and to show progress.
        """
        self.name, self.version = name, version
        defaults = inspect.signature(generate).parameters
        self.options = {
            option: Option(defaults[option].default, meaning)
            for option, meaning in meanings.items()
        }
        self._generate, self._parts = generate, parts

    def box_side(self, options: Mapping[str, Any]) -> int:
        """Returns the side of chips that are cut by boxes, whatever the range."""
        crop, side = (options.get(n, self.options[n].default) for n in ("crop", "size"))
        return side if crop == "box" else 0

    def scan(self, request: Request) -> Scan:
        """Collects the options; the renderer checks most of them."""
        settings = all_options(self, request.options)
        framing(settings["crop"], settings["size"], settings["surround"])  # checks them
        state = {
            name: value for name, value in settings.items() if (name, value) not in _BEFORE.items()
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
