"""The tasks, one folder each, all trained by the loop of :mod:`jaxatr.training`."""

from typing import TYPE_CHECKING

from jaxatr import lazy

if TYPE_CHECKING:
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

__getattr__ = lazy.attributes(
    __name__,
    {
        "Detection": "jaxatr.tasks.detection.task",
        "Distillation": "jaxatr.tasks.distillation.task",
        "Embedding": "jaxatr.tasks.embedding.task",
        "LossOutput": "jaxatr.training.task",
        "OpenSet": "jaxatr.tasks.open_set.task",
        "Phase": "jaxatr.training.task",
        "Target": "jaxatr.explain",
        "Task": "jaxatr.training.task",
        "TrackOpenSet": "jaxatr.tasks.track.task",
    },
)
