"""The outputs of a network on some examples, which scores are computed from."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxatr.typing import Bool, Float, Int, Shaped

UNKNOWN = -1
"""The label of an example whose class is not among the known ones, and of a rejection."""


class Outputs(NamedTuple):
    """A network's outputs on n examples.

    Attributes:
      logits: ``[n, k]``, of the closed-set classifier.
      open_logits: ``[n, k]``, of the binary classifiers.
      labels: ``[n]``, known class, or :data:`UNKNOWN`.
      more: name of a score's need to its array ``[n, ...]``, such as ``"features"`` ``[n, d]``.
    """

    logits: Float[np.ndarray, "n k"]
    open_logits: Float[np.ndarray, "n k"]
    labels: Int[np.ndarray, " n"]
    more: Mapping[str, Shaped[np.ndarray, "n ..."]] = {}

    @property
    def predicted(self) -> Int[np.ndarray, " n"]:
        """The known class with the largest logit, ``[n]``."""
        return self.logits.argmax(axis=-1)

    def select(self, chosen: Bool[np.ndarray, " n"] | Int[np.ndarray, " m"]) -> "Outputs":
        """Returns the outputs on the chosen examples: those marked, or at these positions."""
        more = {name: array[chosen] for name, array in self.more.items()}
        return Outputs(self.logits[chosen], self.open_logits[chosen], self.labels[chosen], more)

    def widened(self, classes: int) -> "Outputs":
        """Returns the outputs with so many further classes, which the heads take nothing for.

        Their logits are minus infinity.
        """
        if not classes:
            return self
        beyond = [(0, 0), (0, classes)]
        logits, open_logits = (
            np.pad(array, beyond, constant_values=-np.inf)
            for array in (self.logits, self.open_logits)
        )
        return Outputs(logits, open_logits, self.labels, self.more)

    def without(self, classes: Collection[int]) -> "Outputs":
        """Returns the outputs as if there were no such classes: without their logits.

        Their examples have the label :data:`UNKNOWN`; the other classes move up.
        """
        kept = [c for c in range(self.logits.shape[1]) if c not in classes]
        moved = np.full(self.logits.shape[1] + 1, UNKNOWN, self.labels.dtype)
        moved[kept] = np.arange(len(kept))
        labels = moved[self.labels]  # the last element is for UNKNOWN, -1
        return Outputs(self.logits[:, kept], self.open_logits[:, kept], labels, self.more)


def concatenated(parts: Sequence[Outputs]) -> Outputs:
    """Joins outputs of one network on several sets of examples, one after the other.

    Args:
      parts: at least one, all with the same ``more``.
    """
    return Outputs(
        np.concatenate([part.logits for part in parts]),
        np.concatenate([part.open_logits for part in parts]),
        np.concatenate([part.labels for part in parts]),
        {name: np.concatenate([part.more[name] for part in parts]) for name in parts[0].more},
    )
