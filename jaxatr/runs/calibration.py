"""A finished run's calibration to labelled chips of the field."""

import os
from typing import Any

from jaxatr import training
from jaxatr.tasks.open_set import field
from jaxatr.tasks.open_set.predictor import OpenSetPredictor
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
    """Fits the threshold and the probabilities of a run to chips of the field.

    The network and what the score was fitted to stay as they are. From then on
    :func:`jaxatr.load` and ``jaxatr predict`` decide so, until :func:`undo_calibration`.

    Args:
      workdir: the run's folder.
      source: a folder of class folders of known classes; of a run on tracks, a folder for each
        track in them.
      score: whose; by default that of the score that decides.
      tpr: share of known chips that is to be accepted; by default the configured one.
      per_class: whether that is to hold for each class that chips are taken for; by default as
        configured.
      checkpoint: ``"latest"``, ``"best"`` or a step.

    Returns:
      Figures before and after, see :func:`jaxatr.tasks.open_set.field.calibrate`.

    Raises:
      ValueError: no run that decides, or a folder that cannot be used.
    """
    recogniser, fields = _recogniser(workdir, score, checkpoint)
    return field.calibrate(
        recogniser,
        workdir,
        recogniser.step,
        source,
        tpr=fields.tpr if tpr is None else tpr,
        per_class=fields.per_class if per_class is None else per_class,
    )


def undo_calibration(
    workdir: str | os.PathLike, *, score: str | None = None, checkpoint: Checkpoint = "latest"
) -> str:
    """Removes what :func:`calibrate_run` wrote, and returns the removed file's path.

    Raises:
      ValueError: there is no such calibration.
    """
    recogniser, _ = _recogniser(workdir, score, checkpoint)
    name = recogniser.decision.score.name
    path = field.undo(workdir, recogniser.step, recogniser.kept)
    if path is None:
        raise ValueError(f"{workdir}: {name} is not calibrated to chips of the field")
    return str(path)


def _recogniser(
    workdir: str | os.PathLike, score: str | None, checkpoint: Checkpoint
) -> tuple[OpenSetPredictor, Any]:
    kind = training.predictor_class(training.task_of(workdir))
    if not issubclass(kind, OpenSetPredictor):
        raise ValueError(f"{workdir}: wanted a run of open-set recognition, which decides")
    recogniser = kind.load(workdir, checkpoint=checkpoint, score=score, field=False)
    return recogniser, training.load_config(workdir).open_set
