"""The tasks, one folder each, all trained by the loop of :mod:`jaxatr.training`."""

from jaxatr.explain import Target
from jaxatr.tasks.detection.task import Detection
from jaxatr.tasks.distillation.task import Distillation
from jaxatr.tasks.embedding.task import Embedding
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.tasks.track.task import TrackOpenSet
from jaxatr.training.task import LossOutput, Phase, Task

__all__ = [
    "Detection",
    "Distillation",
    "Embedding",
    "LossOutput",
    "OpenSet",
    "Phase",
    "Target",
    "Task",
    "TrackOpenSet",
]
