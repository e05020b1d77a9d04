"""What can be trained: one file per thing, each for the one loop of :mod:`jaxatr.training`."""

from jaxatr.tasks.base import LossOutput, Phase, Task
from jaxatr.tasks.distillation import Distillation
from jaxatr.tasks.embedding import Embedding
from jaxatr.tasks.open_set import OpenSet
from jaxatr.tasks.target import Target
from jaxatr.tasks.track import TrackOpenSet

__all__ = [
    "Distillation",
    "Embedding",
    "LossOutput",
    "OpenSet",
    "Phase",
    "Target",
    "Task",
    "TrackOpenSet",
]
