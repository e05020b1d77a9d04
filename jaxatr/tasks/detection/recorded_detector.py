"""The recorded facts of an evaluated detector, for its report."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxatr import training
from jaxatr.reporting import plain, recorded_run
from jaxatr.reporting.sprite import Thumbnail

_NEEDED = ("found_truth", "true_boxes", "true_labels", "true_class")


class RecordedDetector(NamedTuple):
    """An evaluated detector; see :class:`jaxatr.reporting.kind.Recorded`.

    Attributes:
      name: the run's name in the report.
      config: content of ``config.json``.
      record: content of ``record.json``.
      evaluation: content of ``evaluation.json``.
      metrics: records of ``metrics.jsonl``.
      thumbnails: pictures of missed targets, by row of the true boxes, and of false alarms, by -1 -
        row of the found ones.
      arrays: content of ``scores.npz``.
    """

    name: str
    config: dict[str, Any]
    record: dict[str, Any]
    evaluation: dict[str, Any]
    metrics: list[dict[str, Any]]
    thumbnails: dict[int, Thumbnail]
    arrays: dict[str, np.ndarray]

    @property
    def simulated(self) -> bool:
        """Whether the images come from a simulated sensor."""
        return recorded_run.is_simulated(self.record)


def read(folder: Path, name: str) -> RecordedDetector:
    """Reads an evaluated detector.

    Raises:
      ValueError: it is not evaluated yet, or by an earlier version, or a file cannot be read.
    """
    run = plain.read(folder, name)
    arrays = recorded_run.read_arrays(folder / training.SCORES)
    if not {*_NEEDED} <= arrays.keys() or "confusion" not in run.evaluation:
        raise ValueError(
            f"{folder}: evaluated by an earlier version: run jaxatr evaluate --workdir={folder}"
        )
    names, counts = (run.evaluation["confusion"][name] for name in ("names", "counts"))
    if {len(counts), *map(len, counts)} != {len(names)}:
        raise ValueError(
            f"{folder / training.EVALUATION}: confusion.counts: wanted {len(names)} rows of "
            f"{len(names)} numbers, one for each of confusion.names"
        )
    rows = np.arange(-len(arrays["found_truth"]), len(arrays["true_labels"]))
    places = recorded_run.read_thumbnails(folder / training.THUMBNAILS, rows)
    pictures = {int(rows[place]): picture for place, picture in places.items()}
    return RecordedDetector(*run[:5], pictures, arrays)
