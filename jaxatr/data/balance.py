"""Weights of classes with unequal numbers of examples, and passes that repeat the rare ones."""

import numpy as np

from jaxatr.typing import Float, Int

UNBALANCED = "none"
BALANCES = (UNBALANCED, "sqrt", "effective")
"""Ways of weighing classes: equally, by the square root of their size, by their effective size."""

_BETA = 0.999


def class_weights(
    labels: Int[np.ndarray, " n"], count: int, balance: str
) -> Float[np.ndarray, " k"]:
    """Computes the weight of an example of each class.

    ``"sqrt"``: one over the square root of the class's number of examples, so that a class weighs
    as much in all as its square root. ``"effective"``: one over the effective number of examples
    (Cui et al. 2019, "Class-Balanced Loss Based on Effective Number of Samples"),
    ``(1 - β^n) / (1 - β)`` with β = 0.999: small classes weigh equally in all.

    Args:
      labels: ``[n]``, classes of the training examples; negative ones are of no class.
      count: number of classes k.
      balance: one of :data:`BALANCES`.

    Returns:
      ``[k]``, with a mean over the examples of 1; 1 for a class without examples.

    Raises:
      ValueError: there is no such way.
    """
    if balance not in BALANCES:
        raise ValueError(f"got {balance!r}, wanted one of {', '.join(BALANCES)}")
    sizes = np.bincount(labels[labels >= 0], minlength=count).astype(np.float64)
    weights = np.ones(count)
    if balance == UNBALANCED or not sizes.any():
        return weights
    held = sizes > 0
    if balance == "sqrt":
        weights[held] = sizes[held] ** -0.5
    else:
        weights[held] = (1 - _BETA) / (1 - _BETA ** sizes[held])
    weights[held] *= sizes.sum() / (weights[held] @ sizes[held])
    return weights


def balanced_pass(
    labels: Int[np.ndarray, " n"], balance: str
) -> tuple[Int[np.ndarray, " m"], Int[np.ndarray, " m"]]:
    """Lists the examples of one pass over the data, in which those of rare classes are repeated.

    The class with the lowest weight is in it once, so that no example is left out.

    Args:
      labels: ``[n]``, classes of the training examples; negative ones are of no class.
      balance: one of :data:`BALANCES`.

    Returns:
      ``(rows, copies)``: the examples' positions, and how often each has been in the list before.
    """
    if balance == UNBALANCED:
        return np.arange(len(labels)), np.zeros(len(labels), int)
    weights = class_weights(labels, 1 + int(labels.max(initial=-1)), balance)
    held = np.unique(labels[labels >= 0])
    repeats = weights / weights[held].min(initial=np.inf)
    none = np.flatnonzero(labels < 0)
    rows, copies = [none], [np.zeros(len(none), int)]
    for label in held:
        own = np.flatnonzero(labels == label)
        wanted = np.arange(round(repeats[label] * len(own)))
        rows.append(own[wanted % len(own)])
        copies.append(wanted // len(own))
    return np.concatenate(rows), np.concatenate(copies)
