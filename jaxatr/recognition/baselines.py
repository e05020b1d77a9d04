"""Finding a run's trained baselines in its folder, and adding them to its evaluation."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr import openset
from jaxatr.reporting import score_record
from jaxatr.reporting.recorded_run import read_arrays, read_evaluation
from jaxatr.training.folder import EVALUATION, SCORES


def trained_scores(
    workdir: str | os.PathLike, scores: Iterable[openset.Score] = tuple(openset.SCORES.values())
) -> dict[str, Any]:
    """Finds the scores that have been trained for a run.

    Returns:
      The result of each score's training, by name of the score: a model, or the folder of an
      evaluated run with a separate network.

    Raises:
      ValueError: a model's file cannot be read.
    """
    found: dict[str, Any] = {}
    for score in scores:
        if score.training is None:
            continue
        path = Path(workdir) / score.training.baseline / score.training.leaves
        if score.training.model is None:
            if (path / EVALUATION).is_file() and (path / SCORES).is_file():
                found[score.name] = path
        elif path.is_file():
            found[score.name] = _load(score.training.model, path)
    return found


def _load(model: Any, path: Path) -> Any:
    arrays = read_arrays(path)
    if set(arrays) != set(model._fields):
        raise ValueError(f"{path}: got the arrays {sorted(arrays)}, wanted {sorted(model._fields)}")
    return model(**arrays)


def add_recorded(
    score: str, folder: Path, measured: dict[str, Any], arrays: dict[str, np.ndarray]
) -> None:
    """Adds a score that was evaluated with a separate network, on the same examples.

    Args:
      score: name of the score.
      folder: folder of the evaluated run with that network.
      measured: results of an evaluation. Each group that both evaluations have gets a row for the
        score, whose ``closed_accuracy`` is that of the separate network.
      arrays: arrays of an evaluation, to which the score's values and predictions are added.

    Raises:
      ValueError: a file of the run cannot be read, or the evaluations used different examples.
    """
    evaluation, own = read_evaluation(folder), read_arrays(folder / SCORES)
    for part in ("test", "validation"):
        ids, others = (recorded.get(f"{part}_id", np.zeros(0)) for recorded in (own, arrays))
        if not np.array_equal(ids, others):
            raise ValueError(f"{folder} was evaluated on different {part} examples: train it again")
        if f"{part}_score_{score}" in own:
            arrays[f"{part}_score_{score}"] = own[f"{part}_score_{score}"]
    arrays[f"test_predicted_{score}"] = score_record.recorded_predictions(own, score)
    for name, group in measured["groups"].items():
        if name not in evaluation["groups"]:  # images of other data, only in this evaluation
            continue
        recorded = evaluation["groups"][name]
        row = recorded["scores"][score]
        if "closed_accuracy" in recorded:
            row = {**row, "closed_accuracy": recorded["closed_accuracy"]}
        group["scores"][score] = row
