"""Open-set recognition of tracks: several chips of one target, in the order of time."""

from jaxatr.tasks.track.chips import TrackChips
from jaxatr.tasks.track.task import TrackOpenSet

__all__ = ["TrackChips", "TrackOpenSet"]
