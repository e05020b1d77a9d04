"""Open-set recognition of tracks: several chips of one target, in the order of time."""

from jaxatr.tasks.track.task import TrackChips, TrackOpenSet

__all__ = ["TrackChips", "TrackOpenSet"]
