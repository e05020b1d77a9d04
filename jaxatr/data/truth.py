"""Ground truth for explanations: the pixels of a chip that show its target."""

from typing import NamedTuple

import numpy as np

from jaxatr.typing import Bool, Float


class Truth(NamedTuple):
    """The positions of the targets in n chips; None if the data has none.

    Attributes:
      masks: ``[n, h, w]``.
      boxes: ``[n, 4]``, y0, x0, y1, x1 in pixels of the chip.
    """

    masks: Bool[np.ndarray, "n h w"] | None = None
    boxes: Float[np.ndarray, "n 4"] | None = None
