"""Detection of targets in scenes, with an open-set decision on the class of each."""

from jaxatr.tasks.detection.task import Detection

__all__ = ["Detection"]
