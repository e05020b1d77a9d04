"""Calibrates a finished run to chips from the field."""

import os
from typing import Any

from jaxatr import training
from jaxatr.recognition import field_calibration
from jaxatr.recognition.recogniser import OpenSetPredictor
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

    The network and the fitted score do not change. :func:`jaxatr.load` and ``jaxatr predict`` use
    the calibration until :func:`undo_calibration` removes it.

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
      ``score``, ``chips``, ``path``, and figures ``before`` and ``after`` the calibration
      (:func:`jaxatr.recognition.field_calibration.calibrate`).

    Raises:
      ValueError: ``workdir`` is not a run of open-set recognition, or ``source`` cannot be used.
    """
    recogniser = _recogniser(workdir, score, checkpoint)
    options = _options(workdir, tpr, per_class)
    return field_calibration.calibrate(recogniser, workdir, recogniser.step, source, **options)


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

    It is used and removed like the calibration of :func:`calibrate_run`, whose arguments it has.

    Args:
      workdir: the run's folder.
      source: chips of known and unknown classes: a folder, a table or an archive; for a run on
        tracks, a folder that contains one folder per track.
      score: the score to calibrate; by default the one that decides.
      tpr: share of known chips to accept; by default the configured one.
      per_class: fit one threshold per predicted class instead of a common one; by default as
        configured.
      checkpoint: ``"latest"``, ``"best"`` or a step.

    Returns:
      ``score``, ``chips``, ``path``, estimates, and figures ``before`` and ``after``
      (:func:`jaxatr.recognition.field_calibration.shift`).

    Raises:
      jaxatr.openset.CannotTell: the known chips cannot be told from the unknown ones, so nothing is
        changed; a ``ValueError``.
      ValueError: ``workdir`` is not a run of open-set recognition, or ``source`` cannot be used.
    """
    recogniser = _recogniser(workdir, score, checkpoint)
    options = _options(workdir, tpr, per_class)
    return field_calibration.shift(recogniser, workdir, recogniser.step, source, **options)


def undo_calibration(
    workdir: str | os.PathLike, *, score: str | None = None, checkpoint: Checkpoint = "latest"
) -> str:
    """Removes a calibration made by :func:`calibrate_run`.

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
    name = recogniser.decision.score.name
    path = field_calibration.undo(workdir, recogniser.step, recogniser.kept)
    if path is None:
        raise ValueError(f"{workdir}: {name} is not calibrated to chips from the field")
    return str(path)


def _recogniser(
    workdir: str | os.PathLike, score: str | None, checkpoint: Checkpoint
) -> OpenSetPredictor:
    kind = training.predictor_class(training.task_of(workdir))
    if not issubclass(kind, OpenSetPredictor):
        raise ValueError(f"{workdir}: wanted a run of open-set recognition")
    return kind.load(workdir, checkpoint=checkpoint, score=score, field=False)


def _options(
    workdir: str | os.PathLike, tpr: float | None, per_class: bool | None
) -> dict[str, Any]:
    fields = training.load_config(workdir).open_set
    return {
        "tpr": fields.tpr if tpr is None else tpr,
        "per_class": fields.per_class if per_class is None else per_class,
    }
