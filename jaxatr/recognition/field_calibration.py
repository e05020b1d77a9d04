"""The calibration of a finished run to field chips, without changing the network."""

import dataclasses
import datetime
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr import metrics, openset, training
from jaxatr.openset.unseen import FEW
from jaxatr.recognition import field_chips, store
from jaxatr.recognition.predictor import OpenSetPredictor
from jaxatr.reporting.tables import guarantee_in_words
from jaxatr.training import Checkpoint


def calibrate_run(
    workdir: str | os.PathLike,
    source: str | os.PathLike,
    *,
    score: str | None = None,
    tpr: float | None = None,
    per_class: bool | None = None,
    checkpoint: Checkpoint = "latest",
) -> dict[str, Any]:
    """Fits the threshold and the probabilities of a run to chips from the field.

    The network and the fitted score do not change. With few chips, the run's own validation
    examples count as well, moved to where the chips lie (:func:`jaxatr.openset.with_field`).
    :func:`jaxatr.load` and ``jaxatr predict`` use the calibration until :func:`undo_calibration`
    removes it.

    Args:
      workdir: the run's folder.
      source: labelled chips of known classes: a folder, a table or an archive, as for training;
        for a run on tracks, a folder of class folders that contain one folder per track.
      score: the score to calibrate; by default the one that decides.
      tpr: share of known chips to accept; by default the configured one.
      per_class: fit one threshold per predicted class instead of a common one; by default as
        configured.
      checkpoint: ``"latest"``, ``"best"`` or a step.

    Returns:
      ``score``, ``chips`` (count by class), ``path`` of the calibration, and ``before`` and
      ``after``, each with ``threshold`` (None if it accepts everything or differs between classes),
      ``guarantee`` (smallest share of known chips that it is guaranteed to accept, or None),
      ``accepted`` (fraction of the chips; leave-one-out after the calibration), and ``temperature``
      and ``calibration_error`` of the class probabilities on the same chips, except those of
      enrolled classes, which have no probabilities (None if no chips are left).

    Raises:
      ValueError: ``workdir`` is not a run of open-set recognition, a class is not known, there are
        no chips, or a chip is invalid.
    """
    recogniser, tpr, per_class = _opened(workdir, score, tpr, per_class, checkpoint)
    chips, before = field_chips.read_labelled(recogniser, source), recogniser.decision
    calibration = before.calibration
    scores, _ = before.score_of(chips.outputs)
    after = openset.calibrate(
        before,
        chips.outputs,
        tpr=tpr,
        per_class=per_class,
        sigmoid=None if calibration is None else calibration.sigmoid,
        # Thresholds of single classes would have no guarantee any more.
        seen=None if per_class else openset.with_field(before, scores, tpr=tpr),
    )
    _warn_of_few(after, recogniser.classes[: chips.outputs.logits.shape[1]])
    path = _save(recogniser, source, after, chips, {"chips": chips.counts})
    figures = {
        "before": _figures(before, chips.outputs, before(chips.outputs).accepted),
        "after": _figures(after, chips.outputs, _by_the_others(after)),
    }
    return {"score": before.score.name, "chips": chips.counts, "path": str(path), **figures}


def _warn_of_few(decision: openset.Decision, classes: Sequence[str]) -> None:
    """Warns if there are too few chips to guarantee the rate, in all or in some of the classes."""
    calibration = decision.calibration
    assert calibration is not None
    guarantees = calibration.guarantees(len(classes))
    few = ~(guarantees >= calibration.tpr)
    if not few.any():
        return
    every = "" if few.all() else f" taken for {', '.join(np.array(classes)[few])}"
    promise = guarantee_in_words(calibration.guarantee(len(classes)))
    needed = openset.examples_needed(calibration.tpr, FEW if calibration.pooled else 1)
    warnings.warn(
        f"tpr: {calibration.held_out} chips are too few to guarantee a rate of "
        f"{calibration.tpr:.3g} for chips{every}: the threshold is an estimate, with {promise}; "
        f"{needed}{' per class' * calibration.per_class} are needed, or fewer with a lower tpr",
        stacklevel=3,
    )


def shift_run(
    workdir: str | os.PathLike,
    source: str | os.PathLike,
    *,
    score: str | None = None,
    tpr: float | None = None,
    per_class: bool | None = None,
    checkpoint: Checkpoint = "latest",
) -> dict[str, Any]:
    """Shifts the threshold and the probabilities of a run to chips from the field without labels.

    The validation scores are moved and stretched to the known part of the chips' scores
    (:mod:`jaxatr.openset.unlabelled`), with thresholds, p-values and probabilities. This is an
    estimate without a guarantee. It is used and removed like that of :func:`calibrate_run`.

    Args:
      workdir: the run's folder.
      source: chips of known and unknown classes: a folder, a table or an archive; for a run on
        tracks, a folder that contains one folder per track.
      score: as for :func:`calibrate_run`, like the next three.
      tpr: share of known chips to accept.
      per_class: whether to fit a threshold for each class.
      checkpoint: the run's checkpoint.

    Returns:
      ``score``, ``chips`` (their number), ``path`` of the calibration, ``unknown`` (estimated
      share), ``unknown_accepted`` (estimated share of the unknown chips), ``tested`` (whether
      trials say that the score separates known from unknown classes), and ``before`` and ``after``,
      each with ``threshold`` (None if it accepts everything or differs between classes) and
      ``accepted`` (fraction of the chips).

    Raises:
      openset.CannotTell: the known chips cannot be told from the unknown ones, so nothing is
        changed; a ``ValueError``.
      ValueError: ``workdir`` is not a run of open-set recognition, the decision is not calibrated
        to validation chips or has enrolled classes, there are no chips, or a chip is invalid.
    """
    recogniser, tpr, per_class = _opened(workdir, score, tpr, per_class, checkpoint)
    before = recogniser.decision
    calibration = shiftable(before, recogniser.further)
    chips = field_chips.read_unlabelled(recogniser, source)
    try:
        after, mixture = shifted(before, chips.outputs, tpr=tpr, per_class=per_class)
    except openset.CannotTell as error:
        raise openset.CannotTell(f"{source}: {_CANNOT}: {error}; {_INSTEAD}") from None
    assert after.calibration is not None
    estimate = {
        "unknown": mixture.unknown,
        "unknown_accepted": mixture.overlap(after.calibration.threshold),
        "tested": calibration.sigmoid is not None,
    }
    count = len(chips.outputs.labels)
    parameters = mixture._asdict() if mixture.unknown else mixture._asdict() | {"centre": None}
    origin = {"unlabelled": count, "mixture": parameters}
    path = _save(recogniser, source, after, chips, origin)
    figures = {
        when: {
            "threshold": _one_threshold(decision, chips.outputs.logits.shape[1]),
            "accepted": float(np.mean(decision(chips.outputs).accepted)),
        }
        for when, decision in (("before", before), ("after", after))
    }
    return {"score": before.score.name, "chips": count, "path": str(path), **estimate, **figures}


def shifted(
    decision: openset.Decision, outputs: openset.Outputs, *, tpr: float, per_class: bool
) -> tuple[openset.Decision, openset.Mixture]:
    """Shifts a decision, as :func:`shift_run` does.

    Args:
      decision: the decision, which :func:`shiftable` takes.
      outputs: the network's outputs for chips of the field; their labels are not used.
      tpr: share of known chips to accept.
      per_class: whether to fit a threshold for each class.

    Returns:
      The shifted decision, and the mixture that was fitted to the chips' scores.

    Raises:
      openset.CannotTell: the known chips cannot be told from the unknown ones.
    """
    calibration = decision.calibration
    assert calibration is not None
    mixture = openset.fit_mixture(calibration.scores, decision.score_of(outputs)[0], tpr=tpr)
    moved = calibration._replace(
        scores=mixture.moved(calibration.scores), tpr=tpr, per_class=per_class, unseen=0
    )
    return dataclasses.replace(decision, calibration=moved, threshold=None), mixture


def shiftable(decision: openset.Decision, further: Sequence[str] = ()) -> openset.Calibration:
    """Returns the calibration of a decision, if it can be shifted.

    Args:
      decision: the decision.
      further: names of the enrolled classes that it includes.

    Raises:
      openset.CannotTell: its score does not separate known from held-out classes.
      ValueError: there is none, or classes are enrolled.
    """
    if decision.calibration is None:
        name = decision.score.name
        raise ValueError(f"{name} is not calibrated to validation chips, which could be shifted")
    if decision.further is not None and decision.further.count:
        raise ValueError(
            f"unlabelled: the enrolled classes {', '.join(further)} have thresholds of "
            "their own: wanted a run without them, or --chips with labelled ones"
        )
    _check_separates(decision.score.name, decision.calibration)
    return decision.calibration


def _save(
    recogniser: OpenSetPredictor,
    source: str | os.PathLike,
    decision: openset.Decision,
    chips: field_chips.Chips,
    origin: dict[str, Any],
) -> Path:
    """Saves a decision that was calibrated to field chips, with its origin; returns the path."""
    provenance = {
        "source": str(Path(source).absolute()),
        **origin,
        "digest": chips.digest,
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "image_facts": chips.facts,
        "enrolled": list(recogniser.further),
        "enrolled_chips": chips.enrolled,
    }
    kept = recogniser.kept + store.FIELD
    return store.save(recogniser.workdir, recogniser.step, kept, decision, provenance)


_CANNOT = "known chips cannot be told from unknown ones, so nothing is changed"
_INSTEAD = "use --chips with a few labelled ones"
_MOST_DOUBT = 0.1


def _check_separates(score: str, calibration: openset.Calibration) -> None:
    """Checks that the score separates known classes from those held out in trials, if any.

    The mean probability of being unknown, at even odds, of known chips is 0.1 if known and unknown
    scores are Gaussians three spreads apart. That is farther than the mixture needs, because
    runs of earlier versions have sigmoids of held-out classes that their network has seen.

    Raises:
      openset.CannotTell: it does not.
    """
    if calibration.sigmoid is None:
        return
    known = calibration.known_probabilities(calibration.scores)
    assert known is not None
    if (doubt := float(np.mean(1 - known))) > _MOST_DOUBT:
        raise openset.CannotTell(
            f"{_CANNOT}: {score} gives known validation chips a mean probability of "
            f"{doubt:.0%} of being unknown, wanted at most {_MOST_DOUBT:.0%}; {_INSTEAD}"
        )


def undo_calibration(
    workdir: str | os.PathLike, *, score: str | None = None, checkpoint: Checkpoint = "latest"
) -> str:
    """Removes a calibration made by :func:`calibrate_run` or :func:`shift_run`.

    Args:
      workdir: the run's folder.
      score: the calibrated score; by default the one that decides.
      checkpoint: ``"latest"``, ``"best"`` or a step.

    Returns:
      The path of the removed file.

    Raises:
      ValueError: there is no such calibration.
    """
    recogniser = _recogniser(workdir, score, checkpoint)
    path = store.path_of(workdir, recogniser.step, recogniser.kept + store.FIELD)
    if not path.is_file():
        name = recogniser.decision.score.name
        others = sorted(one.name for one in path.parent.glob(f"*{store.FIELD}.npz"))
        which = "".join(f"; --score={one.split('.')[0]} is" for one in others)
        raise ValueError(f"{workdir}: {name} is not calibrated to chips from the field{which}")
    path.unlink()
    return str(path)


def _recogniser(
    workdir: str | os.PathLike, score: str | None, checkpoint: Checkpoint
) -> OpenSetPredictor:
    kind = training.predictor_class(training.task_of(workdir))
    if not issubclass(kind, OpenSetPredictor):
        raise ValueError(f"{workdir}: wanted a run of open-set recognition")
    return kind.load(workdir, checkpoint=checkpoint, score=score, field=False)


def _opened(
    workdir: str | os.PathLike,
    score: str | None,
    tpr: float | None,
    per_class: bool | None,
    checkpoint: Checkpoint,
) -> tuple[OpenSetPredictor, float, bool]:
    """Returns a run's recogniser without calibration to the field, and the options, completed."""
    recogniser = _recogniser(workdir, score, checkpoint)
    fields = training.load_config(workdir).open_set
    return (
        recogniser,
        fields.tpr if tpr is None else tpr,
        fields.per_class if per_class is None else per_class,
    )


def _figures(
    decision: openset.Decision, outputs: openset.Outputs, accepted: np.ndarray
) -> dict[str, Any]:
    answers = decision(outputs)
    least = float(np.min(decision.guarantees(outputs.logits.shape[1])))
    # The network has no probabilities of enrolled classes.
    trained = outputs.labels < outputs.logits.shape[1]
    shares, labels = answers.probabilities[trained], outputs.labels[trained]
    error = (
        metrics.expected_calibration_error(
            np.clip(shares.max(axis=1), 0, 1), shares.argmax(axis=1) == labels
        )
        if trained.any()
        else None
    )
    calibration = decision.calibration
    return {
        "threshold": _one_threshold(decision, outputs.logits.shape[1]),
        "guarantee": None if np.isnan(least) else least,
        "accepted": float(np.mean(accepted)),
        "temperature": 1.0 if calibration is None else calibration.temperature,
        "calibration_error": error,
    }


def _one_threshold(decision: openset.Decision, classes: int) -> float | None:
    """Returns the threshold; None if it accepts everything or differs between classes."""
    thresholds = set(decision.thresholds(classes).tolist())
    alone = thresholds.pop() if len(thresholds) == 1 else None
    return alone if alone is not None and np.isfinite(alone) else None


def _by_the_others(decision: openset.Decision) -> np.ndarray:
    """Decides about each chip with the threshold fitted to all others (leave-one-out)."""
    calibration, further = decision.calibration, decision.further
    assert calibration is not None
    accepted = []
    for row, nearest in enumerate(calibration.nearest[: calibration.held_out]):
        rest = _without(row, calibration, decision.score.scale)
        if further is not None and nearest >= further.first:
            threshold = further.thresholds(rest)[nearest - further.first]
        else:
            threshold = rest.thresholds(int(nearest) + 1)[nearest]
        accepted.append(calibration.scores[row] >= threshold)
    return np.array(accepted)


def _without(
    row: int, calibration: openset.Calibration, scale: openset.Scale
) -> openset.Calibration:
    """Returns a calibration without one of its chips; other examples are moved to the rest."""
    others = np.arange(len(calibration.scores)) != row
    scores, count = calibration.scores[others], calibration.held_out - 1
    if calibration.pooled and count:
        moved = openset.as_unseen(scores[count:], scores[:count], scale=scale)
        scores = np.concatenate([scores[:count], moved])
    return calibration._replace(
        scores=scores,
        nearest=calibration.nearest[others],
        unseen=None if calibration.unseen is None else count,
    )
