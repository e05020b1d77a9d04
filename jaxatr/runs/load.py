"""Loads the predictor of a finished run, whatever its kind."""

import os
from typing import Any

from jaxatr import training
from jaxatr.runs.evaluation import check_options
from jaxatr.training import Predictor


def load_predictor(workdir: str | os.PathLike, **options: Any) -> Predictor:
    """Loads what predicts with a run: a recogniser, a retriever …

    Args:
      workdir: the run's folder.
      **options: of the kind's predictor: ``gamma`` and ``checkpoint`` of a recogniser,
        ``neighbours`` and ``max_distance`` of a retriever.

    Raises:
      ValueError: no run, a kind that predicts nothing, or an option that the kind does not have.
    """
    task = training.task_of(workdir)
    found = training.predictor_class(task)
    check_options(workdir, task.__name__, found.load, options)
    return found.load(workdir, **options)
