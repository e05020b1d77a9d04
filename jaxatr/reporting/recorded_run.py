"""Reads an evaluated run's folder for a report."""

import dataclasses
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr import training
from jaxatr.reporting import recorded_sets, score_record
from jaxatr.reporting.sprite import Thumbnail
from jaxatr.typing import Int, Shaped

SIMULATED = (
    "simulated",
    "simulated_clutter",
    "simulated_scenes",
    "simulated_tracks",
)
"""Names of the simulated data sets."""


@dataclasses.dataclass(frozen=True)
class RecordedRun:
    """A trained and evaluated open-set run with n test examples.

    Attributes:
      name: the run's name in the report.
      workdir: the run's folder, as given.
      config: content of ``config.json``.
      record: content of ``record.json``.
      evaluation: content of ``evaluation.json``.
      metrics: the records of ``metrics.jsonl``.
      labels: ``[n]``, known class or :data:`jaxatr.openset.UNKNOWN`.
      predicted: ``[n]``, the nearest known class by the run's network.
      named: name of a score to ``[n]``, the nearest known class: that of the score if it names
        classes, else ``predicted``. Measures of a score are of these.
      predictions: the same, but for the score that decides the class of the decision.
      scores: name to ``[n]``, higher = more known.
      ranges: ``[n]`` in metres; ``None`` if the data has no ranges.
      thumbnails: row of a test example to its picture; empty if none were recorded.
      decided: arrays of the run's decision on each example, by name, and as ``predicted`` the class
        by its logits; empty if not recorded.
    """

    name: str
    workdir: str
    config: dict[str, Any]
    record: dict[str, Any]
    evaluation: dict[str, Any]
    metrics: list[dict[str, Any]]
    labels: Int[np.ndarray, " n"]
    predicted: Int[np.ndarray, " n"]
    named: dict[str, Int[np.ndarray, " n"]]
    predictions: dict[str, Int[np.ndarray, " n"]]
    scores: dict[str, Shaped[np.ndarray, " n"]]
    ranges: Shaped[np.ndarray, " n"] | None
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

    def shown(self, score: str) -> score_record.ScoreStyle:
        """Returns the title and scale of a score."""
        return score_record.shown(score, self.evaluation)

    def label(self, score: str) -> str:
        """Returns the title of a score, with its name if they differ."""
        return score_record.label(score, self.evaluation)

    @property
    def by_distance(self) -> bool:
        """Whether all scores are distances, so that the threshold is a distance and not a γ."""
        return all(self.shown(name).scale == "distance" for name in self.scores)

    @property
    def takes(self) -> str:
        """Meaning of a path that ``jaxatr predict`` takes, such as ``"IMAGE"``."""
        return training.predictor_class(training.task_of(self.workdir)).takes

    @property
    def first_score(self) -> str:
        """The deciding score; if not recorded, the one with the highest AUROC.

        Without unknown examples there is no AUROC, and it is the first score.
        """
        if (decides := self.evaluation.get("decides")) in self.scores:
            return decides
        return max(self.scores, key=lambda name: self.measured[name].get("auroc", 0.0))


def is_simulated(record: dict[str, Any]) -> bool:
    """Whether a run's images come from the simulated sensor."""
    return record.get("dataset", {}).get("name") in SIMULATED


def read_run(
    workdir: str | os.PathLike, *, name: str | None = None, place: Path | None = None
) -> RecordedRun:
    """Reads the records of an evaluated run with open-set scores.

    Args:
      workdir: the run's folder.
      name: the run's name in the report; by default the folder's name.
      place: folder of its evaluation on another set, instead of that on its own test.

    Raises:
      ValueError: ``workdir`` is not a run, is not evaluated, or a file in it cannot be read or is
        of another evaluation; the message names it.
    """
    folder = Path(workdir)
    own = place is None
    place = folder if place is None else place
    evaluation = read_evaluation(folder) if own else recorded_sets.read(folder, place)
    if "groups" not in evaluation:
        raise ValueError(
            f"{place / training.EVALUATION}: wanted an evaluation with open-set scores"
        )
    arrays = read_arrays(place / training.SCORES)
    missing = {"test_logits", "test_open_logits", "test_labels", "test_id"} - set(arrays)
    if missing:
        raise ValueError(f"{place / training.SCORES}: the array {min(missing)} is missing")
    labels, measured = arrays["test_labels"], evaluation["groups"]["all"]
    if len(labels) != measured["num_known"] + measured["num_unknown"]:
        raise different(place, training.EVALUATION, training.SCORES)
    scores = score_record.recorded_scores(arrays, measured["scores"])
    for score, values in scores.items():
        if not np.isfinite(values).all():
            raise ValueError(
                f"{place / training.SCORES}: the score {score!r} has non-finite values"
            )
    thumbnails = read_thumbnails(place / training.THUMBNAILS, arrays["test_id"])
    decided = {
        name.removeprefix("decided_"): array
        for name, array in arrays.items()
        if name.startswith("decided_")
    }
    if decided:
        chips = len(decided["label"]) != len(labels)  # of tracks, by a network without an LSTM
        logits = arrays["test_chip_logits" if chips else "test_logits"]
        decided["predicted"] = logits.argmax(axis=-1)
    predicted, decides = score_record.recorded_predictions, evaluation.get("decides")
    return RecordedRun(
        name=name or folder.resolve().name,
        workdir=str(workdir),
        config=training.load_config(folder).to_dict(),
        record={**training.read_record(folder), **({} if own else _record_of(evaluation["set"]))},
        evaluation=evaluation,
        metrics=training.read_metrics(folder) if own else [],
        labels=labels,
        predicted=arrays["test_logits"].argmax(axis=-1),
        named={name: predicted(arrays, name) for name in scores},
        predictions={name: predicted(arrays, name, decides) for name in scores},
        scores=scores,
        ranges=arrays.get("test_range_m"),
        thumbnails=thumbnails,
        decided=decided,
    )


def _record_of(facts: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of ``record.json`` that are others for another set."""
    return {
        "dataset": {"name": facts["name"], "fingerprint": facts["fingerprint"]},
        "examples": {"test": facts["images"]},
        "skipped": facts["left_out"],
    }


def read_evaluation(folder: Path) -> dict[str, Any]:
    """Reads a run's ``evaluation.json``.

    Raises:
      ValueError: the folder is not a run, the run is not evaluated, or the file is damaged or
        has a field of the wrong type.
    """
    training.load_config(folder)
    for name in (training.EVALUATION, training.SCORES):
        if not (folder / name).is_file():
            raise ValueError(
                f"{folder} is not evaluated yet: it has no {name}; run "
                f"jaxatr evaluate --workdir={folder}"
            )
    return training.load_evaluation(folder)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Reads the arrays of an ``.npz`` file, by name.

    Raises:
      ValueError: the file cannot be read.
    """
    try:
        with np.load(path) as arrays:
            return dict(arrays)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: not readable arrays ({error})") from error


def read_thumbnails(path: Path, ids: Int[np.ndarray, " n"]) -> dict[int, Thumbnail]:
    """Reads thumbnails by row of the test examples; none if an older version recorded none."""
    if not path.is_file():
        return {}
    arrays = read_arrays(path)
    if not arrays:  # nothing was worth a picture
        return {}
    row = {int(identity): position for position, identity in enumerate(ids)}
    columns = (arrays[field] for field in ("id", "class", "image"))
    return {
        row[int(identity)]: Thumbnail(str(name), image)
        for identity, name, image in zip(*columns, strict=True)
        if int(identity) in row  # an interrupted evaluation can leave those of another test part
    }


def different(folder: Path, one: str, other: str) -> ValueError:
    """Makes the error for two files of a folder that are of different evaluations."""
    return ValueError(
        f"{folder}: {one} and {other} are of different evaluations; run jaxatr evaluate again"
    )
