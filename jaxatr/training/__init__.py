"""The one training loop: state, data parallelism, checkpoints, records."""

from jaxatr.training.cache import enable_compilation_cache
from jaxatr.training.checkpoints import CheckpointError, load_snapshot, saved_steps
from jaxatr.training.kernels import recorded_choices
from jaxatr.training.loop import TrainResult, train
from jaxatr.training.meter import NonFiniteLoss
from jaxatr.training.record import (
    ConfigMismatch,
    check_config,
    read_record,
    record_config,
    update_record,
)
from jaxatr.training.snapshot import Snapshot
from jaxatr.training.state import TrainState
from jaxatr.training.stop import EXIT_PREEMPTED, Preempted, Stopped, stopping_at_once
from jaxatr.training.writers import read_metrics

__all__ = [
    "EXIT_PREEMPTED",
    "CheckpointError",
    "ConfigMismatch",
    "NonFiniteLoss",
    "Preempted",
    "Snapshot",
    "Stopped",
    "TrainResult",
    "TrainState",
    "check_config",
    "enable_compilation_cache",
    "load_snapshot",
    "read_metrics",
    "read_record",
    "record_config",
    "recorded_choices",
    "saved_steps",
    "stopping_at_once",
    "train",
    "update_record",
]
