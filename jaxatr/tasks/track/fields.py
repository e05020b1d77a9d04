"""The configuration fields of tracks, in addition to those of open-set recognition."""

from jaxatr.config import Field, Fields
from jaxatr.tasks.open_set.fields import FIELDS as OF_SINGLE_CHIPS

_SCORE = OF_SINGLE_CHIPS["open_set.score"]

FIELDS: Fields = {
    # Tracks have neither maps nor an image for the default rule.
    "open_set.score": _SCORE._replace(default="auto"),
    "track.frames": Field(8, "most chips per track; longer tracks are cut into pieces"),
    "track.hidden": Field(
        128,
        "size of the LSTM's state; 0: no LSTM, the mean over chips scores a track",
    ),
    "track.chip_weight": Field(
        1.0,
        "weight of the loss of single chips, which have separate heads; 0: off",
    ),
}
