"""The table of a batch's counts and drift, by hour and source."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr import data
from jaxatr.batch.parts import path_of
from jaxatr.data import Cell
from jaxatr.extras import extra
from jaxatr.recognition import sightings
from jaxatr.recognition.drift import Drift, Reference, Watch
from jaxatr.recognition.prediction import UNKNOWN

FILE = "_by_hour.csv"
"""File in the folder of the parts; Parquet readers ignore names that begin with ``_``."""

_SAID = 10  # most sources that are named in lines
_COLUMNS = ("error", "label", "score", *sightings.columns(facts=True))


class _Counts:
    """The counts of a source in an hour, and a watch of the images that were measured."""

    def __init__(self, reference: Reference):
        self.inputs = self.unusable = self.unknown = 0
        self.watch = Watch(reference)

    def add(self, rows: Mapping[str, list[Any]], at: int) -> None:
        self.inputs += 1
        self.unusable += rows["error"][at] is not None
        self.unknown += "label" in rows and rows["label"][at] == UNKNOWN
        facts = [rows[name][at] if name in rows else None for name in sightings.FACTS.values()]
        if facts[0] is not None:
            self.watch.measured(np.array(facts))
            self.watch.scored(rows["score"][at] if "score" in rows else None)


def write(out: Path, parts: int, reference: Reference, say: Callable[[str], object]) -> None:
    """Writes the table of complete parts, and says what drifted.

    Args:
      out: the folder of the parts.
      parts: number of the parts.
      reference: what the chips are compared with.
      say: prints a line for the user.

    Raises:
      OSError: a file cannot be read or written.
    """
    counted: dict[tuple[str, str], _Counts] = {}
    for rows in _parts(out, parts):
        for at, (time, source) in enumerate(
            zip(rows[sightings.TIME], rows[sightings.SOURCE], strict=True)
        ):
            key = f"{time[:13]}:00:00Z", source
            if key not in counted:
                counted[key] = _Counts(reference)
            counted[key].add(rows, at)
    table = []
    for said, ((hour, source), counts) in enumerate(sorted(counted.items())):
        drift = counts.watch.drift()
        table.append({"hour": hour, "source": source} | _cells(counts, drift))
        if said < _SAID and reference.values:
            usable = counts.inputs - counts.unusable
            say(f"{source}: {counts.unknown} of {usable} unknown; {drift.sentence()}")
    data.write_table(out / FILE, table)


def _parts(out: Path, parts: int) -> Iterator[dict[str, list[Any]]]:
    """Yields some columns of each part."""
    parquet = extra("pyarrow.parquet", "parquet", f"{out}: a folder of Parquet files")
    for number in range(parts):
        with parquet.ParquetFile(path_of(out, number)) as file:
            there = [name for name in file.schema_arrow.names if name in _COLUMNS]
            for batch in file.iter_batches(columns=there):
                yield batch.to_pydict()


def _cells(counts: _Counts, drift: Drift) -> dict[str, Cell]:
    usable = counts.inputs - counts.unusable
    shifts = {f"distance_{one.name}": one.distance for one in drift.shifts}
    shifts |= {f"p_value_{one.name}": one.p_value for one in drift.shifts}
    return {
        "inputs": counts.inputs,
        "unusable": counts.unusable,
        "unknown": counts.unknown,
        "unknown_share": counts.unknown / usable if usable else None,
        "measured": drift.chips,
        "drift": bool(drift.found) if drift.shifts else None,
        **shifts,
    }
