"""Reads an evaluated run's folder for a report."""

import dataclasses
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr import openset, training
from jaxatr.reporting.sprite import Thumbnail
from jaxatr.typing import Int, Shaped

SIMULATED = ("simulated", "simulated_tracks")
"""The data sets of the simulated sensor."""


@dataclasses.dataclass(frozen=True)
class RecordedRun:
    """A run that was trained and evaluated, with n test examples.

    Attributes:
      name: what the report calls it.
      workdir: its folder, as it was given.
      config: content of ``config.json``.
      record: content of ``record.json``.
      evaluation: content of ``evaluation.json``.
      metrics: the records of ``metrics.jsonl``.
      labels: ``[n]``, known class or :data:`jaxatr.openset.UNKNOWN`.
      predicted: ``[n]``, the known class that the run's network finds nearest.
      predictions: name of a score to ``[n]``, the nearest known class: the same for all but a score
        that comes from a network of its own.
      scores: name to ``[n]``, higher = more known.
      ranges: ``[n]`` in metres, ``None`` where the data does not say them.
      thumbnails: row of a test example to its picture; empty if none were recorded.
      decided: the decision on each example that a recogniser takes, by name; empty if none is
        recorded.
    """

    name: str
    workdir: str
    config: dict[str, Any]
    record: dict[str, Any]
    evaluation: dict[str, Any]
    metrics: list[dict[str, Any]]
    labels: Int[np.ndarray, " n"]
    predicted: Int[np.ndarray, " n"]
    predictions: dict[str, Int[np.ndarray, " n"]]
    scores: dict[str, Shaped[np.ndarray, " n"]]
    ranges: Int[np.ndarray, " n"] | None
    thumbnails: dict[int, Thumbnail]
    decided: dict[str, np.ndarray]

    @property
    def classes(self) -> list[str]:
        """The known classes, by label."""
        return self.evaluation["known"]

    @property
    def simulated(self) -> bool:
        """Whether the images come from the simulated sensor."""
        return is_simulated(self.record)

    @property
    def measured(self) -> dict[str, Any]:
        """Name of a score to its measures over all test examples."""
        return self.evaluation["groups"]["all"]["scores"]

    def shown(self, score: str) -> openset.Shown:
        """Finds title and scale of a score."""
        return openset.shown(score, self.evaluation)

    @property
    def by_distance(self) -> bool:
        """Whether its scores are distances, so that the threshold is one and no γ."""
        return all(self.shown(name).scale == "distance" for name in self.scores)

    @property
    def of_tracks(self) -> bool:
        """Whether its test examples are tracks."""
        return "tracks" in self.record

    @property
    def first_score(self) -> str:
        """The score that decides; where none is recorded, the one with the highest AUROC.

        It is the first where there are no unknown examples.
        """
        if (decides := self.evaluation.get("decides")) in self.scores:
            return decides
        return max(self.scores, key=lambda name: self.measured[name].get("auroc", 0.0))


def is_simulated(record: dict[str, Any]) -> bool:
    """Says whether a run's images come from the simulated sensor."""
    return record.get("dataset", {}).get("name") in SIMULATED


def read_run(workdir: str | os.PathLike, *, name: str | None = None) -> RecordedRun:
    """Reads the record of a run that tells known from unknown by a score.

    Args:
      workdir: the run's folder.
      name: what the report calls it; by default, the folder's name.

    Raises:
      ValueError: ``workdir`` is no run folder, is not evaluated, or a file in it cannot be read or
        is of another evaluation; it is named.
    """
    folder = Path(workdir)
    evaluation = read_evaluation(folder)
    if "groups" not in evaluation:
        raise ValueError(
            f"{folder / training.EVALUATION}: an evaluation without scores, wanted one of groups"
        )
    arrays = read_arrays(folder / training.SCORES)
    missing = {"test_logits", "test_open_logits", "test_labels", "test_id"} - set(arrays)
    if missing:
        raise ValueError(f"{folder / training.SCORES}: there is no array {min(missing)} in it")
    labels, measured = arrays["test_labels"], evaluation["groups"]["all"]
    if len(labels) != measured["num_known"] + measured["num_unknown"]:
        raise different(folder, training.EVALUATION, training.SCORES)
    scores = openset.recorded_scores(arrays, measured["scores"])
    for score, values in scores.items():
        if not np.isfinite(values).all():
            raise ValueError(f"{folder / training.SCORES}: the score {score!r} is not finite")
    thumbnails = read_thumbnails(folder / training.THUMBNAILS, arrays["test_id"])
    return RecordedRun(
        name=name or folder.resolve().name,
        workdir=str(workdir),
        config=training.load_config(folder).to_dict(),
        record=training.read_record(folder),
        evaluation=evaluation,
        metrics=training.read_metrics(folder),
        labels=labels,
        predicted=arrays["test_logits"].argmax(axis=-1),
        predictions={name: openset.recorded_predictions(arrays, name) for name in scores},
        scores=scores,
        ranges=arrays.get("test_range_m"),
        thumbnails=thumbnails,
        decided={
            name.removeprefix("decided_"): array
            for name, array in arrays.items()
            if name.startswith("decided_")
        },
    )


def read_evaluation(folder: Path) -> dict[str, Any]:
    """Returns the content of a run's ``evaluation.json``.

    Raises:
      ValueError: the folder is no run's, or its run is not evaluated as something to report.
    """
    training.load_config(folder)
    path = folder / training.EVALUATION
    for needed in (path, folder / training.SCORES):
        if not needed.is_file():
            raise ValueError(
                f"{folder} is not evaluated yet: there is no {needed.name} in it; run "
                f"jaxatr evaluate --workdir={folder}"
            )
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not a readable evaluation ({error})") from error


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Returns the arrays of a file by name.

    Raises:
      ValueError: it cannot be read.
    """
    try:
        with np.load(path) as arrays:
            return dict(arrays)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: not readable arrays ({error})") from error


def read_thumbnails(path: Path, ids: Int[np.ndarray, " n"]) -> dict[int, Thumbnail]:
    """Returns them by row; none where an evaluation by an older version recorded none."""
    if not path.is_file():
        return {}
    arrays = read_arrays(path)
    row = {int(identity): position for position, identity in enumerate(ids)}
    columns = (arrays[field] for field in ("id", "class", "image"))
    return {
        row[int(identity)]: Thumbnail(str(name), image)
        for identity, name, image in zip(*columns, strict=True)
        if int(identity) in row  # of another test part, if its evaluation was cut off
    }


def different(folder: Path, one: str, other: str) -> ValueError:
    """Returns the error that two files of a folder do not belong together."""
    return ValueError(
        f"{folder}: {one} and {other} are of different evaluations; run jaxatr evaluate again"
    )
