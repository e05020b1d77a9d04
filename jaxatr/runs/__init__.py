"""A run from its configuration to its evaluation, as the commands do it and as a program can."""

from jaxatr.runs.baselines import BASELINES, check_baselines, train_baseline
from jaxatr.runs.evaluation import evaluate_run
from jaxatr.runs.folder import (
    EVALUATION,
    INDEX,
    SCORES,
    THUMBNAILS,
    explains,
    load_config,
    load_evaluation,
    refuse_other_target,
    takes_tracks,
    variables_of,
)
from jaxatr.runs.intake import Intake
from jaxatr.runs.pretrained import backbone_variables
from jaxatr.runs.target import load_target
from jaxatr.runs.training import make_task, train_run

__all__ = [
    "BASELINES",
    "EVALUATION",
    "INDEX",
    "SCORES",
    "Intake",
    "THUMBNAILS",
    "backbone_variables",
    "check_baselines",
    "evaluate_run",
    "explains",
    "load_config",
    "load_evaluation",
    "load_target",
    "make_task",
    "refuse_other_target",
    "takes_tracks",
    "train_baseline",
    "train_run",
    "variables_of",
]
