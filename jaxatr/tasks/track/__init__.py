"""Open-set recognition of tracks, which are chips of one target in temporal order."""

from jaxatr.tasks.track.chips import TrackChips
from jaxatr.tasks.track.task import TrackOpenSet

__all__ = ["TrackChips", "TrackOpenSet"]
