"""Conversion and validation of the examples that a score is fitted to."""

import chex
import numpy as np
from numpy.typing import ArrayLike as Values
from numpy.typing import DTypeLike

from jaxatr.typing import ArrayLike, Float, Int, Shaped


def as_numpy(values: Values, dtype: DTypeLike | None = None) -> np.ndarray:
    """Converts to NumPy's array in the machine's byte order, which jax takes for granted.

    PyTorch's tensors may have a gradient, be on a GPU, or be in bfloat16.
    """
    if detach := getattr(values, "detach", None):  # NumPy takes none of these
        tensor = detach().cpu()
        values = tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor
    array = np.asarray(values, dtype)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def as_floats(values: Values) -> Float[np.ndarray, "..."]:
    """Converts to float64 what has more digits than float32 holds, and everything else to float32.

    In 16 bits, scores would have ties and sums would overflow; negated unsigned integers wrap.
    """
    array = as_numpy(values)
    wide = np.promote_types(array.dtype, np.float32).itemsize > 4
    return array.astype(np.float64 if wide else np.float32, copy=False)


def as_classes(name: str, values: Values) -> Int[np.ndarray, "..."]:
    """Converts numbers of classes to signed integers.

    Args:
      name: name of the values in error messages.
      values: integers of any type.

    Raises:
      ValueError: they are not integers.
    """
    array = as_numpy(values)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{name}: got {array.dtype} values, wanted integers")
    return array.astype(np.int64, copy=False)


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


def known_labels(
    labels: Values, rows: int, classes: int, *, name: str = "labels"
) -> Int[np.ndarray, " n"]:
    """Checks that all labels are known classes.

    Args:
      labels: ``[n]``.
      rows: n, number of examples.
      classes: number of known classes.
      name: name of the labels in error messages.

    Raises:
      ValueError: a label is not an integer, or is outside ``[0, classes)``.
    """
    labels = as_classes(name, labels)
    chex.assert_shape(labels, (rows,))
    bad = np.flatnonzero((labels < 0) | (labels >= classes))
    if bad.size:
        raise ValueError(
            f"{name}: got {labels[bad[0]]} at {bad[0]}, wanted known classes only, 0 to "
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
