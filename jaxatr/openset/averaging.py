"""Means of a network's outputs over the chips of each track."""

import numpy as np

from jaxatr.openset.outputs import Outputs
from jaxatr.typing import Float, Int, Shaped


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
