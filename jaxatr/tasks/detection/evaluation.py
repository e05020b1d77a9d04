"""The measures of a detector, on the validation and on the test scenes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from jaxatr import data
from jaxatr.forms import BOOLEAN, COUNT, FIGURE, NUMBER, TEXTS, Form, ObjectForm
from jaxatr.scenes import metrics
from jaxatr.tasks.detection.assignment import UNKNOWN
from jaxatr.tasks.detection.decoding import Found
from jaxatr.tasks.detection.examples import SceneExamples
from jaxatr.tasks.detection.matching import DROPPED, Matched, match_all, nearest
from jaxatr.training import read_record
from jaxatr.typing import Config, Float, Int

LEAST = 0.01
"""The least score of found targets that are measured."""

RATES = (0.1, 0.2, 1.0)
"""False alarms per scene at which recall is measured."""

UNKNOWN_NAME, NOTHING_NAME = "unknown", "nothing"
"""Names of a target of no known class, and of no target, in the confusion."""

RECALLS = (0.5, 0.7, 0.9)
"""Recalls of targets of any class at which false alarms are counted."""

_PRECISIONS: Form = {"by_class": {"*": {"*": FIGURE}}, "*": FIGURE}
_RATES: Form = {"targets": COUNT, "recall": {"*": FIGURE}, "known": BOOLEAN}
_AT_FITTED: Form = {"targets": COUNT, "recall": FIGURE}

FORM: ObjectForm = {
    **dict.fromkeys(("targets", "scenes"), COUNT),
    "recall": {"*": FIGURE},
    "classes": {"*": _RATES},
    "average_precision": {
        "targets": _PRECISIONS,
        "classes": _PRECISIONS,
        "open": {**dict.fromkeys(("known", "unknown"), _PRECISIONS), "*": FIGURE},
    },
    "false_alarms": {"*": {"*": FIGURE}},
    "ranges": {"*": _AT_FITTED},
    "confusion": {"names": TEXTS, "counts": [[COUNT]]},
    "decision": {
        **dict.fromkeys(("threshold", "false_alarms", "gamma"), NUMBER),
        **dict.fromkeys(("unknown_found", "open_set_errors"), COUNT),
        "*": FIGURE,
    },
}
"""The form of a detector's ``evaluation.json``."""

_BIN_M = 500  # metres of the bins of targets' ranges


@runtime_checkable  # the tests check annotations at run time
class Detects(Protocol):
    """The parts of a detection task that the evaluation needs."""

    config: Config
    examples: SceneExamples
    split: data.KnownUnknown


def matched(task: Detects, found: Sequence[Found], part: str) -> Matched:
    """Matches the found targets of a part's scenes to the true ones."""
    return match_all(found, task.examples.parts[part].boxes, task.examples.labels(part))


def summary(task: Detects, found: Sequence[Found]) -> dict[str, float]:
    """Returns the figures of the validation scenes that the training shows.

    ``recall`` is that of all targets at ``detection.false_alarms`` per scene, ``named`` the share
    of the found known ones whose class has the highest probability.
    """
    all_found = matched(task, found, "validation")
    threshold = all_found.threshold(task.config.detection.false_alarms)
    known = all_found.hit & (all_found.labels >= 0) & (all_found.scores >= threshold)
    right = all_found.nearest[known] == all_found.labels[known]
    return {
        "recall": _or(all_found.recall(threshold), 0.0),
        "named": float(right.mean()) if known.any() else 0.0,
    }


def fit(task: Detects, found: Sequence[Found]) -> dict[str, Any]:
    """Fits the least score and γ to the validation scenes.

    Returns:
      ``threshold``, at which there are ``detection.false_alarms`` per scene; ``gamma``, the
      probability that ``open_set.tpr`` of the found known targets reach; and ``fitted``, whether
      there were any.
    """
    all_found = matched(task, found, "validation")
    threshold = all_found.threshold(task.config.detection.false_alarms)
    known = all_found.hit & (all_found.labels >= 0) & (all_found.scores >= threshold)
    gamma = task.config.open_set.gamma
    if known.any():
        reached = all_found.known_probability[known]
        gamma = float(np.quantile(reached, 1 - task.config.open_set.tpr, method="lower"))
    return {"threshold": threshold, "gamma": gamma, "fitted": bool(known.any())}


def measured(
    task: Detects, found: Sequence[Found], workdir: Path | None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Measures detection on the test scenes.

    Args:
      task: the task.
      found: the targets found in each test scene.
      workdir: the run's folder, from which the fitted thresholds are read.

    Returns:
      ``(measured, arrays)``. ``average_precision`` has COCO's measures: of ``targets``, whatever
      their class; of the known ``classes``, each found target being of the most probable one; and
      ``open``, the same with γ, ``known`` and ``unknown``. ``recall`` has the recall of all targets
      at rates of false alarms per scene, and ``classes`` that of each class, known or not.
      ``false_alarms`` has those at given recalls of all targets, per scene and, if
      ``detection.ground_sample_distance`` is set, per square kilometre; None where so many targets
      are found at no score.
      ``decision`` has the figures at the fitted threshold: recall, false alarms per scene, and how
      the found targets are named; ``confusion`` counts what was there and what was found. The
      arrays are the found and the true boxes of all scenes, and which are the same.
    """
    fitted = read_record(workdir).get("detection", {}) if workdir is not None else {}
    fitted = {
        "threshold": fitted.get("threshold", 0.5),
        "gamma": fitted.get("gamma", task.config.open_set.gamma),
    }
    all_found = matched(task, found, "test")
    part, record = task.examples.parts["test"], task.examples.record
    rates = {f"{rate:g}": all_found.threshold(rate) for rate in RATES}
    names = np.concatenate([np.zeros(0, int), *part.classes])
    is_target = all_found.total >= UNKNOWN
    classes = {}
    for number, name in enumerate(task.examples.dataset.classes):
        chosen = (names == number) & is_target
        if chosen.any():
            classes[name] = {
                "targets": int(chosen.sum()),
                "known": name in task.split.known,
                "recall": {
                    rate: all_found.recall(threshold, chosen) for rate, threshold in rates.items()
                },
            }
    result: dict[str, Any] = {
        "task": "detection",
        "dataset": record["dataset"],
        "split": record["split"],
        "known": list(task.split.known),
        "unknown": list(task.split.unknown),
        "scenes": all_found.scenes,
        "targets": all_found.targets,
        "average_precision": _averages(task, found, fitted["gamma"]),
        "recall": {rate: _number(all_found.recall(low)) for rate, low in rates.items()},
        "classes": classes,
        "false_alarms": _alarms(all_found, _square_kilometres(task)),
        "decision": fitted | _decided(all_found, **fitted),
        "confusion": _confusion(all_found, task.split.known, **fitted),
    }
    if part.ranges is not None:
        metres = np.concatenate(part.ranges)
        bins = (np.rint(metres / _BIN_M) * _BIN_M).astype(int)
        result["ranges"] = {
            str(one): {
                "targets": int(chosen.sum()),
                "recall": all_found.recall(fitted["threshold"], chosen),
            }
            for one in np.unique(bins)
            if (chosen := (bins == one) & is_target).any()
        }
    truth = np.where(all_found.counted, all_found.truth, DROPPED)
    arrays = _arrays(found, part.split.columns["id"][part.indices])
    return result, arrays | {
        "found_truth": truth.astype(np.int32),
        "true_scene": np.repeat(np.arange(len(part)), [len(one) for one in part.classes]),
        "true_boxes": np.concatenate(part.boxes),
        "true_labels": all_found.total.astype(np.int32),
        "true_class": names.astype(np.int32),
    }


class Scored(NamedTuple):
    """The targets found in the test scenes, as detections of COCO's measures.

    Attributes:
      of_targets: of targets, whatever their class; label 0.
      named: of the most probable known class.
      decided: the same with γ, so that some are unknown.
    """

    of_targets: metrics.Detections
    named: metrics.Detections
    decided: metrics.Detections


def scored(
    scenes: Int[np.ndarray, " n"],
    boxes: Float[np.ndarray, "n 4"],
    scores: Float[np.ndarray, " n"],
    logits: Float[np.ndarray, "n k"],
    gamma: float,
) -> Scored:
    """Scores found targets as targets and as members of their classes.

    Args:
      scenes: ``[n]``, number of the scene of each.
      boxes: ``[n, 4]``.
      scores: ``[n]``, probability of a target.
      logits: ``[n, k]``, of the binary classifiers.
      gamma: γ; below it, a target is unknown.
    """
    scores, probabilities = scores.astype(float), 1 / (1 + np.exp(-logits.astype(float)))
    best, most = nearest(probabilities), probabilities.max(axis=1, initial=0.0)
    named = metrics.Detections(scenes, boxes, scores * most, best)
    refused = most < gamma
    decided = named._replace(
        scores=np.where(refused, scores * (1 - most), scores * most),
        labels=np.where(refused, UNKNOWN, best),
    )
    return Scored(
        metrics.Detections(scenes, boxes, scores, np.zeros(len(scores), int)), named, decided
    )


def truths(
    scenes: Int[np.ndarray, " t"],
    boxes: Float[np.ndarray, "t 4"],
    own: Int[np.ndarray, " t"],
    labels: Sequence[int],
) -> metrics.Truths:
    """Returns true targets for COCO's measures; ignored boxes are crowds of each label.

    Args:
      scenes: ``[t]``, number of the scene of each box.
      boxes: ``[t, 4]``.
      own: ``[t]``, their labels.
      labels: those that are measured.
    """
    target, ignored = own >= UNKNOWN, np.flatnonzero(own < UNKNOWN)
    rows = np.concatenate([np.flatnonzero(target), *[ignored for _ in labels]])
    names = np.concatenate([own[target], np.repeat(labels, len(ignored))])
    crowd = np.arange(len(rows)) >= target.sum()
    return metrics.Truths(scenes[rows], boxes[rows], names, crowd)


def of_any_class(truth: metrics.Truths) -> metrics.Truths:
    """Returns targets without their classes, all of label 0."""
    return truth._replace(labels=np.zeros_like(truth.labels))


def _averages(task: Detects, found: Sequence[Found], gamma: float) -> dict[str, Any]:
    """Returns COCO's and the open-set measures of the test scenes."""
    known = range(len(task.split.known))
    every = scored(
        np.repeat(np.arange(len(found)), [len(one.scores) for one in found]),
        np.concatenate([one.boxes for one in found]),
        np.concatenate([one.scores for one in found]),
        np.concatenate([one.open_logits for one in found]),
        gamma,
    )
    of_scenes = task.examples.labels("test")
    there = (
        np.repeat(np.arange(len(of_scenes)), [len(one) for one in of_scenes]),
        np.concatenate(task.examples.parts["test"].boxes),
        np.concatenate(of_scenes).astype(int),
    )
    truth, target = truths(*there, [*known, UNKNOWN]), of_any_class(truths(*there, [0]))
    average = metrics.average_precision
    figures: dict[str, Any] = {
        "targets": _named(average(every.of_targets, target, classes=[0]), ())
    }
    if known:
        figures["classes"] = _named(average(every.named, truth, classes=known), task.split.known)
    if np.any(there[2] >= 0):
        row = metrics.open_set(every.decided, truth, classes=known)
        figures["open"] = {
            "known": _named(row.known, task.split.known),
            "unknown": _named(row.unknown, ()),
            "threshold": _number(row.threshold),
            "open_set_errors": row.open_set_errors,
            "wilderness_impact": _number(row.wilderness_impact),
        }
    return figures


def _square_kilometres(task: Detects) -> float | None:
    """Returns the ground that the test scenes show; None if a pixel's size is not stated."""
    distance = task.config.detection.ground_sample_distance
    return float(task.examples.parts["test"].pixels.sum()) * distance**2 / 1e6 or None


def _alarms(all_found: Matched, area: float | None) -> dict[str, dict[str, float | None]]:
    """Counts the false alarms at each of :data:`RECALLS`."""
    figures = {}
    for share in RECALLS:
        low = all_found.threshold_of_recall(share)
        scene = None if np.isnan(low) else all_found.false_alarms(low)
        row = {"scene": scene}
        if area is not None:
            row["square_kilometre"] = None if scene is None else scene * all_found.scenes / area
        figures[f"{share:g}"] = row
    return figures


def _confusion(
    all_found: Matched, known: Sequence[str], threshold: float, gamma: float
) -> dict[str, Any]:
    """Counts what was there (rows) and what was found (columns).

    The last row are false alarms, where there was nothing; the last column are targets of which
    nothing was found.
    """
    names = [*known, UNKNOWN_NAME, NOTHING_NAME]
    counts = np.zeros((len(names), len(names)), int)
    chosen = (all_found.scores >= threshold) & all_found.counted
    refused = all_found.known_probability < gamma
    decided = np.where(refused | (all_found.nearest < 0), len(known), all_found.nearest)
    there = np.where(all_found.labels == UNKNOWN, len(known), all_found.labels)
    there = np.where(all_found.hit, there, len(known) + 1)
    np.add.at(counts, (there[chosen], decided[chosen]), 1)
    missed = np.ones(len(all_found.total), bool)
    missed[all_found.truth[chosen & all_found.hit]] = False
    labels = all_found.total[missed & (all_found.total >= UNKNOWN)]
    rows = np.where(labels == UNKNOWN, len(known), labels)
    counts[:, -1] += np.bincount(rows, minlength=len(names))
    return {"names": names, "counts": counts.tolist()}


def _named(row: metrics.Averages, classes: Sequence[str]) -> dict[str, Any]:
    """Converts averages to JSON values, with the names of classes."""
    figures: dict[str, Any] = {n: _number(v) for n, v in row._asdict().items() if n != "by_class"}
    if classes:
        figures["by_class"] = {
            classes[label]: {"ap": _number(ap), "ap50": _number(ap50)}
            for label, (ap, ap50) in row.by_class.items()
        }
    return figures


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _decided(all_found: Matched, threshold: float, gamma: float) -> dict[str, float | int | None]:
    """Returns the figures of the decision at a least score and γ."""
    chosen = all_found.scores >= threshold
    known = all_found.hit & chosen & (all_found.labels >= 0)
    unknown = all_found.hit & chosen & (all_found.labels == UNKNOWN)
    accepted = all_found.known_probability >= gamma
    right = all_found.nearest == all_found.labels
    return {
        "recall": _number(all_found.recall(threshold)),
        "false_alarms": all_found.false_alarms(threshold),
        "named_right": _share(right[known]),
        "known_accepted": _share(accepted[known]),
        "known_named_right": _share((accepted & right)[known]),
        "unknown_accepted": _share(accepted[unknown]),
        "unknown_found": int(unknown.sum()),
        # A-OSE of Miller et al. 2018: unknown targets that are given a known class.
        "open_set_errors": int((accepted & unknown).sum()),
    }


def _arrays(found: Sequence[Found], ids: np.ndarray) -> dict[str, np.ndarray]:
    counts = [len(one.scores) for one in found]
    return {
        "test_id": ids,
        "found_scene": np.repeat(np.arange(len(found)), counts),
        "found_boxes": np.concatenate([one.boxes for one in found]).astype(np.float32),
        "found_scores": np.concatenate([one.scores for one in found]).astype(np.float32),
        "found_open_logits": np.concatenate([one.open_logits for one in found]).astype(np.float32),
    }


def _share(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def _or(value: float, other: float) -> float:
    return other if np.isnan(value) else value
