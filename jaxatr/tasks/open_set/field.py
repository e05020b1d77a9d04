"""The calibration of a finished run to labelled chips of the field; the network stays as it is."""

import datetime
import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxatr import metrics, openset
from jaxatr.tasks.open_set import fitted
from jaxatr.tasks.open_set.predictor import OpenSetPredictor

_LOGITS = ("logits", "open_logits")


class Chips(NamedTuple):
    """Labelled chips of the field, as a network sees them.

    Attributes:
      outputs: of the network, with the chips' classes as labels.
      counts: name of a class to its chips.
      digest: SHA-256 of their files' names and contents.
    """

    outputs: openset.Outputs
    counts: dict[str, int]
    digest: str


def calibrate(
    recogniser: OpenSetPredictor,
    workdir: str | os.PathLike,
    step: int,
    source: str | os.PathLike,
    *,
    tpr: float,
    per_class: bool,
) -> dict[str, Any]:
    """Fits thresholds and probabilities to chips, and keeps them beside the run's own.

    Args:
      recogniser: of the run, as it decides without any calibration to chips of the field.
      workdir: the run's folder.
      step: of its checkpoint.
      source: a folder of class folders, of known classes.
      tpr: share of known chips that is to be accepted.
      per_class: whether that is to hold for each class that chips are taken for.

    Returns:
      ``score``, ``chips`` (class to count), ``path`` of the calibration, and ``before`` and
      ``after``: ``threshold`` (None where it accepts everything), ``accepted`` (share of the chips;
      after it, of each by the others), ``temperature`` and ``calibration_error`` of the class
      probabilities on the same chips.

    Raises:
      ValueError: a folder is named as no known class, there is no chip, or one cannot be used.
    """
    chips, before = read_chips(recogniser, source), recogniser.decision
    own = before.calibration
    after = openset.calibrate(
        before,
        chips.outputs,
        tpr=tpr,
        per_class=per_class,
        sigmoid=None if own is None else own.sigmoid,
    )
    provenance = {
        "source": str(Path(source).absolute()),
        "chips": chips.counts,
        "digest": chips.digest,
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    path = fitted.save(workdir, step, recogniser.kept + fitted.FIELD, after, provenance)
    figures = {
        "before": _figures(before, chips.outputs, before(chips.outputs).accepted),
        "after": _figures(after, chips.outputs, _by_the_others(after)),
    }
    return {"score": before.score.name, "chips": chips.counts, "path": str(path), **figures}


def read_chips(recogniser: OpenSetPredictor, source: str | os.PathLike) -> Chips:
    """Reads a folder of class folders, and runs the network on it.

    Raises:
      ValueError: as :func:`calibrate`.
    """
    root = Path(source)
    if not root.is_dir():
        raise ValueError(f"source: there is no folder {root}")
    folders = sorted(one for one in root.iterdir() if one.is_dir() and one.name[0] != ".")
    paths: list[Path] = []
    labels: list[int] = []
    for folder in folders:
        if folder.name not in recogniser.classes:
            raise ValueError(
                f"{folder}: got a folder {folder.name!r}, wanted one for each known class that "
                f"there are chips of, {', '.join(recogniser.classes)}"
            )
        found = sorted(path for path in folder.iterdir() if path.name[0] != ".")
        paths += found
        labels += [recogniser.classes.index(folder.name)] * len(found)
    if not paths:
        raise ValueError(f"{root}: there is no folder of a known class with a chip in it")
    parts = list(recogniser.outputs(recogniser.read(str(path)) for path in paths))
    logits, open_logits = (
        np.concatenate([getattr(part, name) for part in parts]) for name in _LOGITS
    )
    more = {name: np.concatenate([part.more[name] for part in parts]) for name in parts[0].more}
    classes = {recogniser.classes[c]: labels.count(c) for c in dict.fromkeys(labels)}
    outputs = openset.Outputs(logits, open_logits, np.array(labels), more)
    return Chips(outputs, classes, _digest(paths, root))


def undo(workdir: str | os.PathLike, step: int, kept: str) -> Path | None:
    """Removes the calibration of a score to chips of the field; returns its path if there was one.

    Args:
      workdir: the run's folder.
      step: of the checkpoint.
      kept: name of what was fitted for the score (:attr:`OpenSetPredictor.kept`).
    """
    path = fitted.path_of(workdir, step, kept + fitted.FIELD)
    if not path.is_file():
        return None
    path.unlink()
    return path


def _figures(
    decision: openset.Decision, outputs: openset.Outputs, accepted: np.ndarray
) -> dict[str, Any]:
    answers = decision(outputs)
    thresholds = set(decision.thresholds(outputs.logits.shape[1]).tolist())
    alone = thresholds.pop() if len(thresholds) == 1 else None
    right = answers.probabilities.argmax(axis=1) == outputs.labels
    highest = np.clip(answers.probabilities.max(axis=1), 0, 1)
    calibration = decision.calibration
    return {
        "threshold": alone if alone is not None and np.isfinite(alone) else None,
        "accepted": float(np.mean(accepted)),
        "temperature": 1.0 if calibration is None else calibration.temperature,
        "calibration_error": metrics.expected_calibration_error(highest, right),
    }


def _by_the_others(decision: openset.Decision) -> np.ndarray:
    """Decides about each chip by a threshold that all others give."""
    own = decision.calibration
    assert own is not None
    accepted = []
    for row in range(len(own.scores)):
        others = np.arange(len(own.scores)) != row
        if own.per_class:
            others &= own.nearest == own.nearest[row]
        threshold = openset.conformal_threshold(own.scores[others], tpr=own.tpr)
        accepted.append(own.scores[row] >= threshold)
    return np.array(accepted)


def _digest(paths: list[Path], root: Path) -> str:
    found = hashlib.sha256()
    for path in paths:
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            found.update(f"{file.relative_to(root)}\n".encode())
            found.update(file.read_bytes())
    return found.hexdigest()
