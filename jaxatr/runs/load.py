"""Loads the predictor of a finished run, whatever its kind."""

import os
from collections.abc import Sequence
from typing import Any

from jaxatr import training
from jaxatr.runs.evaluation import check_options
from jaxatr.tasks.open_set.predictor import Recogniser
from jaxatr.training import Predictor


def load_predictor(
    workdir: str | os.PathLike | Sequence[str | os.PathLike], **options: Any
) -> Predictor:
    """Loads what predicts with a run: a recogniser, a retriever …

    Args:
      workdir: the run's folder; several for an ensemble of recognisers of single images.
      **options: of the kind's predictor: ``gamma`` and ``checkpoint`` of a recogniser,
        ``neighbours`` and ``max_distance`` of a retriever.

    Raises:
      ValueError: no run, a kind that predicts nothing, an option that the kind does not have, or
        runs that make no ensemble.
    """
    if not isinstance(workdir, str | os.PathLike):
        return _ensemble(workdir, options)
    task = training.task_of(workdir)
    found = training.predictor_class(task)
    check_options(workdir, task.__name__, found.load, options)
    return found.load(workdir, **options)


def _ensemble(workdirs: Sequence[str | os.PathLike], options: dict[str, Any]) -> Predictor:
    for workdir in workdirs:
        task = training.task_of(workdir)
        found = training.predictor_class(task)
        if not issubclass(found, Recogniser):
            raise ValueError(
                f"{workdir}: a run of {task.__name__} makes no ensemble, wanted recognisers of "
                "single images"
            )
        check_options(workdir, task.__name__, found.load, options)
    return Recogniser.load(workdirs, **options)
