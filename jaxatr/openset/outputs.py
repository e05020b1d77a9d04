"""The network outputs that scores are computed from, and their means over tracks."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxatr.typing import Bool, Float, Int, Shaped

UNKNOWN = -1
"""The label of examples whose class is not known, and of rejected examples."""


class Outputs(NamedTuple):
    """A network's outputs on n examples.

    Attributes:
      logits: ``[n, k]``, logits of the closed-set classifier.
      open_logits: ``[n, k]``, logits of the binary classifiers.
      labels: ``[n]``, known classes, or :data:`UNKNOWN`.
      more: further arrays ``[n, ...]`` that scores need, by name, such as ``"features"``
        ``[n, d]``.
    """

    logits: Float[np.ndarray, "n k"]
    open_logits: Float[np.ndarray, "n k"]
    labels: Int[np.ndarray, " n"]
    more: Mapping[str, Shaped[np.ndarray, "n ..."]] = {}

    def array(self, name: str) -> Shaped[Any, "n ..."]:
        """Returns one of the arrays by its name.

        Raises:
          ValueError: there is no array of this name.
        """
        if name in self._fields[:3]:
            return getattr(self, name)
        if name not in self.more:
            raise ValueError(
                f"outputs: there is no {name!r}, only {', '.join(self.more) or 'logits'}"
            )
        return self.more[name]

    @property
    def predicted(self) -> Int[np.ndarray, " n"]:
        """``[n]``, the known class with the largest logit."""
        return self.logits.argmax(axis=-1)

    def select(self, chosen: Bool[np.ndarray, " n"] | Int[np.ndarray, " m"]) -> "Outputs":
        """Returns the outputs on some of the examples, chosen by a mask or by indices."""
        more = {name: array[chosen] for name, array in self.more.items()}
        return Outputs(self.logits[chosen], self.open_logits[chosen], self.labels[chosen], more)

    def widened(self, classes: int) -> "Outputs":
        """Returns the outputs with additional ``classes``, whose logits are minus infinity."""
        if not classes:
            return self
        beyond = [(0, 0), (0, classes)]
        logits, open_logits = (
            np.pad(array, beyond, constant_values=-np.inf)
            for array in (self.logits, self.open_logits)
        )
        return Outputs(logits, open_logits, self.labels, self.more)

    def without(self, classes: Collection[int]) -> "Outputs":
        """Returns the outputs without some classes.

        Their logits are dropped, their examples are labelled :data:`UNKNOWN`, and the remaining
        classes are renumbered.
        """
        kept = [c for c in range(self.logits.shape[1]) if c not in classes]
        moved = np.full(self.logits.shape[1] + 1, UNKNOWN, self.labels.dtype)
        moved[kept] = np.arange(len(kept))
        labels = moved[self.labels]  # the last element is for UNKNOWN, -1
        return Outputs(self.logits[:, kept], self.open_logits[:, kept], labels, self.more)


def concatenated(parts: Sequence[Outputs]) -> Outputs:
    """Concatenates a network's outputs on several sets of examples.

    Args:
      parts: the outputs, at least one, all with the same keys in ``more``.
    """
    return Outputs(
        np.concatenate([part.logits for part in parts]),
        np.concatenate([part.open_logits for part in parts]),
        np.concatenate([part.labels for part in parts]),
        {name: np.concatenate([part.more[name] for part in parts]) for name in parts[0].more},
    )


def mean_over(
    values: Shaped[np.ndarray, "m ..."], lengths: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "n ..."]:
    """Computes the mean of each group of consecutive rows, in float64.

    Args:
      values: ``[m, ...]``, group after group.
      lengths: ``[n]``, number of rows in each group, at least 1; they add up to m.

    >>> mean_over(np.array([1.0, 3.0, 5.0]), np.array([2, 1])).tolist()
    [2.0, 5.0]
    """
    starts = np.cumsum(lengths) - lengths
    sums = np.add.reduceat(np.asarray(values, np.float64), starts, axis=0)
    return sums / lengths.reshape(-1, *[1] * (values.ndim - 1))


def mean_outputs(chips: Outputs, lengths: Int[np.ndarray, " n"]) -> Outputs:
    """Computes the mean logits and the first label of each group of consecutive rows.

    The class with the largest mean logit also has the largest mean log-probability, because the two
    differ by the same constant for all classes of a row.

    Args:
      chips: outputs on m single chips.
      lengths: ``[n]``, number of rows in each group; they add up to m.
    """
    return Outputs(
        mean_over(chips.logits, lengths),
        mean_over(chips.open_logits, lengths),
        chips.labels[np.cumsum(lengths) - lengths],
    )
