"""What a fit checks of the examples that it is given."""

import numpy as np

from jaxatr.typing import ArrayLike, Float, Int, Shaped


def finite(name: str, rows: Shaped[ArrayLike, "n d"]) -> Float[np.ndarray, "n d"]:
    """Returns the rows in float64.

    Raises:
      ValueError: there are none, or one is not finite.
    """
    rows = np.asarray(rows, np.float64)
    if not len(rows):
        raise ValueError(f"{name}: got shape {rows.shape}, wanted [n, d] with n > 0")
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if bad.size:
        raise ValueError(f"{name}: {bad.size} rows are not finite, the first is {bad[0]}")
    return rows


def known_labels(labels: Int[ArrayLike, " n"], rows: int, classes: int) -> Int[np.ndarray, " n"]:
    """Returns the labels, all of known classes.

    Raises:
      ValueError: they are not one per row, or one is outside ``[0, classes)``.
    """
    labels = np.asarray(labels)
    if labels.shape != (rows,):
        raise ValueError(f"labels: got shape {labels.shape}, wanted one per row, ({rows},)")
    bad = np.flatnonzero((labels < 0) | (labels >= classes))
    if bad.size:
        raise ValueError(
            f"labels: got {labels[bad[0]]} at {bad[0]}, wanted known classes only, 0 to "
            f"{classes - 1}"
        )
    return labels
