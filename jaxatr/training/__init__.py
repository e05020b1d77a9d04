"""The training loop shared by all tasks: state, data parallelism, checkpoints, records."""

from jaxatr.training.cache import enable_compilation_cache
from jaxatr.training.checkpoints import CheckpointError, load_snapshot, saved_steps
from jaxatr.training.folder import (
    EVALUATION,
    INDEX,
    OWN_TEST,
    SCORES,
    SETS,
    THUMBNAILS,
    load_config,
    set_folder,
    training_alone,
    variables_of,
    write_file,
)
from jaxatr.training.kernels import recorded_choices
from jaxatr.training.loop import TrainResult, train
from jaxatr.training.meter import ExplodingLoss, NonFiniteLoss
from jaxatr.training.metrics_file import read_metrics
from jaxatr.training.networks import Exportable, Surrogate, Target, digest
from jaxatr.training.predictor import Predictor
from jaxatr.training.record import (
    ConfigMismatch,
    check_config,
    check_same,
    read_record,
    record_config,
    update_record,
)
from jaxatr.training.repeats import (
    REPEATS,
    SUMMARY,
    RecordedRepeats,
    Repeats,
    read_repeats,
    run_id,
)
from jaxatr.training.snapshot import Snapshot
from jaxatr.training.state import TrainState
from jaxatr.training.stop import EXIT_PREEMPTED, Preempted, Stopped, stopping_at_once
from jaxatr.training.task import Hook, LossOutput, Phase, Task, TrainedRun
from jaxatr.training.trackers import trackers_of
from jaxatr.training.trained_run import (
    Checkpoint,
    check_predictor,
    load_evaluation,
    load_run,
    loading_once,
    predictor_class,
    task_class,
    task_of,
    warn_unfinished,
)

__all__ = [
    "EVALUATION",
    "EXIT_PREEMPTED",
    "INDEX",
    "REPEATS",
    "SCORES",
    "OWN_TEST",
    "SETS",
    "SUMMARY",
    "THUMBNAILS",
    "Checkpoint",
    "CheckpointError",
    "ConfigMismatch",
    "ExplodingLoss",
    "Exportable",
    "Hook",
    "LossOutput",
    "NonFiniteLoss",
    "Phase",
    "Predictor",
    "Preempted",
    "RecordedRepeats",
    "Repeats",
    "Snapshot",
    "Stopped",
    "Surrogate",
    "Target",
    "Task",
    "TrainResult",
    "TrainState",
    "TrainedRun",
    "check_config",
    "check_predictor",
    "check_same",
    "digest",
    "enable_compilation_cache",
    "load_config",
    "load_evaluation",
    "load_run",
    "load_snapshot",
    "loading_once",
    "predictor_class",
    "read_metrics",
    "read_record",
    "read_repeats",
    "record_config",
    "recorded_choices",
    "run_id",
    "saved_steps",
    "set_folder",
    "stopping_at_once",
    "task_class",
    "task_of",
    "train",
    "training_alone",
    "trackers_of",
    "update_record",
    "variables_of",
    "warn_unfinished",
    "write_file",
]
