"""The outputs of a network for tracks and for their chips."""

from typing import NamedTuple

import numpy as np

from jaxatr import openset
from jaxatr.typing import Int


class PartOutputs(NamedTuple):
    """A network's outputs for the r tracks of a part and for their m chips.

    Attributes:
      tracks: outputs for each track; from a network of single chips, the mean over its chips.
      chips: outputs for each chip, grouped by track.
      lengths: ``[r]``, number of chips of each track.
    """

    tracks: openset.Outputs
    chips: openset.Outputs
    lengths: Int[np.ndarray, " r"]
