"""The configuration fields of tracks, beside those of open-set recognition."""

from jaxatr.config import Field, Fields

FIELDS: Fields = {
    "track.frames": Field(8, "a longer track is cut into pieces of so many chips"),
    "track.hidden": Field(
        128, "components of the LSTM's state; 0: no LSTM, single chips and their mean"
    ),
    "track.chip_weight": Field(
        1.0,
        "weight of the loss of single chips, by heads of their own, beside that of tracks; 0: off",
    ),
}
