"""Detection of targets in scenes, with an open-set decision on the class of each."""

from typing import TYPE_CHECKING

from jaxatr import lazy

if TYPE_CHECKING:
    from jaxatr.tasks.detection.task import Detection

__all__ = ["Detection"]

__getattr__ = lazy.attributes(
    __name__,
    {
        "Detection": "jaxatr.tasks.detection.task",
    },
)
