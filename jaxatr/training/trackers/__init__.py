"""Trackers, which show the records of a training: TensorBoard, MLflow. A file each."""

from jaxatr.parts import Parts
from jaxatr.training.trackers.tracker import Record, Tracker, Writer

TRACKERS = Parts("jaxatr.training.trackers", Tracker, field="train.trackers")
"""The trackers by name."""


def trackers_of(names: str) -> list[Tracker]:
    """Returns the trackers with the given names, separated by commas.

    Raises:
      ValueError: there is none of a name, or a name is given twice.
      ImportError: a package of one is not installed.
    """
    listed = [name.strip() for name in names.split(",") if name.strip()]
    if len(set(listed)) < len(listed):
        raise ValueError(f"train.trackers: got {names!r}, in which a name is given twice")
    found = [TRACKERS.find(name) for name in listed]
    for tracker in found:
        tracker.check()
    return found


__all__ = ["TRACKERS", "Record", "Tracker", "Writer", "trackers_of"]
