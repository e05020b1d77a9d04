"""Means of a network's outputs over the chips of one track."""

import numpy as np

from jaxatr.openset.outputs import Outputs
from jaxatr.typing import Float, Int, Shaped


def mean_over(
    values: Shaped[np.ndarray, "m ..."], lengths: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "n ..."]:
    """Returns the mean of each group of neighbouring rows, in float64.

    Args:
      values: ``[m, ...]``, group after group.
      lengths: ``[n]``, rows of each group, at least 1; together m.

    >>> mean_over(np.array([1.0, 3.0, 5.0]), np.array([2, 1])).tolist()
    [2.0, 5.0]
    """
    starts = np.cumsum(lengths) - lengths
    sums = np.add.reduceat(np.asarray(values, np.float64), starts, axis=0)
    return sums / lengths.reshape(-1, *[1] * (values.ndim - 1))


def mean_outputs(chips: Outputs, lengths: Int[np.ndarray, " n"]) -> Outputs:
    """Returns the mean logits over each group of neighbouring rows, and the label of its first.

    The class of the largest mean logit is that of the largest mean log-probability: the two differ
    by a constant of each row.

    Args:
      chips: outputs on m single chips.
      lengths: ``[n]``, rows of each group; together m.
    """
    return Outputs(
        mean_over(chips.logits, lengths),
        mean_over(chips.open_logits, lengths),
        chips.labels[np.cumsum(lengths) - lengths],
    )
