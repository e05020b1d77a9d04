"""Conversion and validation of the examples that a score is fitted to."""

import chex
import numpy as np
from numpy.typing import ArrayLike as Values
from numpy.typing import DTypeLike

from jaxatr.typing import ArrayLike, Float, Int, Shaped


def as_numpy(values: Values, dtype: DTypeLike | None = None) -> np.ndarray:
    """Converts to NumPy's array, also PyTorch's tensors that have a gradient or are on a GPU."""
    if detach := getattr(values, "detach", None):  # NumPy takes none of these
        values = detach().cpu()
    return np.asarray(values, dtype)


def finite(name: str, rows: Shaped[ArrayLike, "n d"]) -> Float[np.ndarray, "n d"]:
    """Converts rows to float64, and checks that they are finite.

    Args:
      name: name of the rows in error messages.
      rows: ``[n, d]``.

    Raises:
      ValueError: there are no rows, or one is not finite.
    """
    rows = as_numpy(rows, np.float64)
    chex.assert_rank(rows, 2)
    if not len(rows):
        raise ValueError(f"{name}: got shape {rows.shape}, wanted [n, d] with n > 0")
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if bad.size:
        raise ValueError(f"{name}: {bad.size} rows are not finite, the first is {bad[0]}")
    return rows


def known_labels(labels: Int[ArrayLike, " n"], rows: int, classes: int) -> Int[np.ndarray, " n"]:
    """Checks that all labels are known classes.

    Args:
      labels: ``[n]``.
      rows: n, number of examples.
      classes: number of known classes.

    Raises:
      ValueError: a label is outside ``[0, classes)``.
    """
    labels = as_numpy(labels)
    chex.assert_shape(labels, (rows,))
    bad = np.flatnonzero((labels < 0) | (labels >= classes))
    if bad.size:
        raise ValueError(
            f"labels: got {labels[bad[0]]} at {bad[0]}, wanted known classes only, 0 to "
            f"{classes - 1}"
        )
    return labels


def activations(features: Shaped[ArrayLike, "n d"]) -> Float[np.ndarray, "n d"]:
    """Converts features to float64, and checks that they are finite and non-negative.

    Raises:
      ValueError: there are no features, or one is not finite or is negative.
    """
    features = finite("features", features)
    if features.min() < 0:
        raise ValueError(
            f"features: got {features.min():.3g} among them, wanted none below 0, as after a ReLU"
        )
    return features
