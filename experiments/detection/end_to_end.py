"""Measures a recogniser on the boxes that a detector found, beside the true boxes.

    python -m experiments.detection.end_to_end --detector=DIR --recogniser=DIR --out=FILE.json

The scenes are the test scenes of the detector's data. The recogniser's classes are the known ones;
targets of other classes are unknown. OSCR of the true boxes is that of all targets. That of the
found boxes is of the same targets; one that the detector missed is neither named right nor
accepted. OSCR of the found targets alone says how much the boxes cost, without the misses.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import jaxatr
from jaxatr import metrics, training
from jaxatr.data.scene_image import SceneImage, scene_of
from jaxatr.runs.training import make_task
from jaxatr.tasks.detection.assignment import IGNORED, UNKNOWN
from jaxatr.tasks.detection.decoding import Found
from jaxatr.tasks.detection.matching import FALSE_ALARM, match
from jaxatr.tasks.detection.predictor import Detector
from jaxatr.tasks.detection.recognised import Chips
from jaxatr.tasks.detection.scene_task import SceneTask


class Decided(NamedTuple):
    """The recogniser's decisions about targets.

    Attributes:
      names: the true class of each.
      scores: ``[n]``, of the recogniser; minus infinity for one without a decision.
      nearest: the class that each is most similar to; empty for one without a decision.
      accepted: ``[n]``, whether each is given a known class.
    """

    names: list[str]
    scores: np.ndarray
    nearest: list[str]
    accepted: np.ndarray

    def oscr(self, classes: tuple[str, ...], chosen: np.ndarray | None = None) -> float:
        """Returns OSCR of all targets, or of the chosen ones."""
        names, nearest = np.array(self.names), np.array(self.nearest)
        some = np.ones(len(names), bool) if chosen is None else chosen
        known = np.isin(names, classes)
        right = (names == nearest) & np.isfinite(self.scores)
        # What has no decision is below every score that there is.
        scores = np.where(np.isfinite(self.scores), self.scores, np.finfo(float).min)
        return metrics.oscr(scores[some & known], right[some & known], scores[some & ~known])


Decision = tuple[float, str, bool]
"""Score, nearest class and whether it is accepted."""

_MISSED: Decision = (-np.inf, "", False)


def decided(chips: Chips, scene: SceneImage, boxes: np.ndarray) -> Iterator[Decision]:
    """Yields the recogniser's decision about each box."""
    for one in chips.decided(scene, boxes):
        if isinstance(one, ValueError):
            yield _MISSED
        else:
            prediction: Any = one
            yield prediction.score, prediction.nearest, prediction.label != "unknown"


LEAST = (1.0, 0.5, 0.25, 0.125)
"""Least detection scores that are measured, as shares of the detector's own."""


def measured(
    detector: Detector, recogniser: Any, task: SceneTask, most: int | None = None
) -> dict[str, Any]:
    """Measures the recogniser on true and on found boxes of the test scenes.

    Args:
      detector: finds the targets.
      recogniser: decides.
      task: has the scenes.
      most: the largest number of scenes; None for all.

    Returns:
      The figures of the true boxes, and in ``found`` those of the found boxes by the least score of
      a target, the detector's own first.
    """
    chips, part = Chips(recogniser), task.examples.parts["test"]
    every = task.examples.dataset.classes
    names: list[str] = []
    true: list[Decision] = []
    found: list[Decision] = []
    seen_with: list[float] = []
    alarms: list[tuple[float, bool]] = []
    scenes = len(part) if most is None else min(most, len(part))
    for number in range(scenes):
        scene = scene_of(part.image(number))
        labels = task.examples.labels("test")[number]
        boxes, target = part.boxes[number], labels > IGNORED
        names += [every[label] for label in part.classes[number][target]]
        true += decided(chips, scene, boxes[target])
        # Suppression and matching go from the highest score down, so that those of a higher least
        # score are among these.
        seen = detector.detect_in(scene, least=LEAST[-1] * detector.threshold)
        rows = match(
            Found(seen.boxes, seen.scores, np.zeros((len(seen.scores), 0))),
            boxes,
            np.where(target, UNKNOWN, IGNORED),
        )
        scored = zip(decided(chips, scene, seen.boxes), seen.scores.tolist(), strict=True)
        decisions = list(zip(rows.tolist(), scored, strict=True))
        by_row = dict(decisions)
        for row in np.flatnonzero(target).tolist():
            decision, score = by_row.get(row, (_MISSED, -np.inf))
            found.append(decision)
            seen_with.append(score)
        alarms += [
            (score, accepted) for row, ((_, _, accepted), score) in decisions if row == FALSE_ALARM
        ]
    on_true, classes = _columns(names, true), tuple(recogniser.classes)
    rows_of_found = []
    for share in LEAST:
        least = share * detector.threshold
        some = [
            decision if score >= least else _MISSED
            for decision, score in zip(found, seen_with, strict=True)
        ]
        given = [accepted for score, accepted in alarms if score >= least]
        rows_of_found.append(
            {"least_score": least, "share_of_own": share}
            | _compared(on_true, _columns(names, some), classes)
            | {
                "false_alarms_per_scene": len(given) / scenes,
                "false_alarms_that_are_given_a_class": float(np.mean(given)) if given else None,
            }
        )
    return {
        "scenes": scenes,
        "targets": len(names),
        "known": list(classes),
        "oscr_true_boxes": on_true.oscr(classes),
        "found": rows_of_found,
    }


def _compared(on_true: Decided, on_found: Decided, classes: tuple[str, ...]) -> dict[str, Any]:
    """Returns the figures of found boxes."""
    hit = np.isfinite(on_found.scores)
    return {
        "recall": float(hit.mean()),
        "oscr_found_boxes": on_found.oscr(classes),
        "oscr_of_found_targets": {
            "true boxes": on_true.oscr(classes, hit),
            "found boxes": on_found.oscr(classes, hit),
        },
        "same_class_from_both_boxes": float(
            np.mean(np.array(on_true.nearest)[hit] == np.array(on_found.nearest)[hit])
        ),
    }


def _columns(names: list[str], decisions: list[Decision]) -> Decided:
    scores, nearest, accepted = zip(*decisions, strict=True)
    return Decided(names, np.array(scores, float), list(nearest), np.array(accepted))


def main() -> None:
    """Measures and records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--detector", required=True)
    parser.add_argument("--recogniser", required=True)
    parser.add_argument("--scenes", type=int, default=None, help="the most scenes; default: all")
    parser.add_argument("--data_dir", default="", help="folder of prepared data sets")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    config = training.load_config(given.detector)
    config.data.data_dir = given.data_dir
    task, detector = make_task(config, given.detector), jaxatr.load(given.detector)
    if not (isinstance(task, SceneTask) and isinstance(detector, Detector)):
        parser.error(f"--detector: {given.detector} is not the run of a detector")
    figures = measured(detector, jaxatr.load(given.recogniser), task, given.scenes)
    records = {
        name: {key: training.read_record(folder).get(key) for key in ("code", "split", "dataset")}
        for name, folder in (("detector", given.detector), ("recogniser", given.recogniser))
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps({"records": records, "figures": figures}, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
