"""What a network said of some examples, and what else a score may need to know of them."""

from typing import NamedTuple

import numpy as np

from jaxatr.typing import Bool, Float, Int

UNKNOWN = -1
"""The label of an example whose class is not among the known ones, and of a rejection."""


class Outputs(NamedTuple):
    """A network's outputs on n examples.

    Attributes:
      logits: ``[n, k]``, of the closed-set classifier.
      open_logits: ``[n, k]``, of the binary classifiers.
      labels: ``[n]``, known class, or :data:`UNKNOWN`.
      features: ``[n, d]``, Z.
      odin: ``[n]``, ODIN's score, which needs the image and the network.
      gradient_norms: ``[n, l]``, squared, of each array of parameters under the confounding label.
      extra_logits: ``[n, e]``, of classes that are no known targets, such as generated images.
    """

    logits: Float[np.ndarray, "n k"]
    open_logits: Float[np.ndarray, "n k"]
    labels: Int[np.ndarray, " n"]
    features: Float[np.ndarray, "n d"] | None = None
    odin: Float[np.ndarray, " n"] | None = None
    gradient_norms: Float[np.ndarray, "n l"] | None = None
    extra_logits: Float[np.ndarray, "n e"] | None = None

    def select(self, chosen: Bool[np.ndarray, " n"]) -> "Outputs":
        """Returns the outputs on the chosen examples."""
        given = {name: array for name, array in self._asdict().items() if array is not None}
        return Outputs(**{name: array[chosen] for name, array in given.items()})
