"""Training, evaluation and use of runs: the functions behind the commands."""

from typing import TYPE_CHECKING

from jaxatr import lazy

if TYPE_CHECKING:
    from jaxatr.recognition.clusters import cluster_run
    from jaxatr.recognition.enrolment import enrol_chips, enrol_run, remove_class
    from jaxatr.recognition.field_calibration import calibrate_run, shift_run, undo_calibration
    from jaxatr.recognition.suggestions import suggest_run
    from jaxatr.runs.baselines import BASELINES, check_baselines, train_baseline
    from jaxatr.runs.continual import train_enrolled
    from jaxatr.runs.evaluation import evaluate_ensemble, evaluate_repeats, evaluate_run
    from jaxatr.runs.field_search import search_fields
    from jaxatr.runs.load import load_predictor
    from jaxatr.runs.training import make_task, train_run
    from jaxatr.tasks.pretrained import backbone_variables

__all__ = [
    "BASELINES",
    "backbone_variables",
    "calibrate_run",
    "check_baselines",
    "cluster_run",
    "enrol_chips",
    "enrol_run",
    "evaluate_ensemble",
    "evaluate_repeats",
    "evaluate_run",
    "load_predictor",
    "make_task",
    "remove_class",
    "search_fields",
    "shift_run",
    "suggest_run",
    "train_baseline",
    "train_enrolled",
    "train_run",
    "undo_calibration",
]

__getattr__ = lazy.attributes(
    __name__,
    {
        "BASELINES": "jaxatr.runs.baselines",
        "backbone_variables": "jaxatr.tasks.pretrained",
        "calibrate_run": "jaxatr.recognition.field_calibration",
        "check_baselines": "jaxatr.runs.baselines",
        "cluster_run": "jaxatr.recognition.clusters",
        "enrol_chips": "jaxatr.recognition.enrolment",
        "enrol_run": "jaxatr.recognition.enrolment",
        "evaluate_ensemble": "jaxatr.runs.evaluation",
        "evaluate_repeats": "jaxatr.runs.evaluation",
        "evaluate_run": "jaxatr.runs.evaluation",
        "load_predictor": "jaxatr.runs.load",
        "make_task": "jaxatr.runs.training",
        "remove_class": "jaxatr.recognition.enrolment",
        "search_fields": "jaxatr.runs.field_search",
        "shift_run": "jaxatr.recognition.field_calibration",
        "suggest_run": "jaxatr.recognition.suggestions",
        "train_baseline": "jaxatr.runs.baselines",
        "train_enrolled": "jaxatr.runs.continual",
        "train_run": "jaxatr.runs.training",
        "undo_calibration": "jaxatr.recognition.field_calibration",
    },
)
