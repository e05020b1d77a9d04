"""Labels that may be wrong, from predictions for examples that took no part in the fit.

Northcutt, Jiang and Chuang (2021), "Confident Learning: Estimating Uncertainty in Dataset Labels":
an example's label is doubted as far as a classifier that has not seen the example gives it a low
probability (self-confidence). The number of wrong labels is not estimated: the paper's estimate
counts the classifier's own errors where it predicts the classes poorly.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from jaxatr.data.doctor.leaks import sklearn
from jaxatr.typing import Float, Int

FOLDS = 5
"""Largest number of folds; a class with fewer examples sets it."""

_WIDTH = 128  # principal components of each representation
_STRENGTHS = (0.01, 0.1)  # inverse strengths of the regularisation


class Suspects(NamedTuple):
    """How far the labels of n examples are to be doubted.

    Attributes:
      order: ``[n]``, positions of the examples, the most doubtful first.
      given: ``[n]``, probability of the given label, by the position of the example.
      likely: ``[n]``, the most probable class.
      probability: ``[n]``, its probability.
      agreement: share of the labels that are predicted; with few of them the ranking says little.
      by: name of the representation that predicts the labels best.
    """

    order: Int[np.ndarray, " n"]
    given: Float[np.ndarray, " n"]
    likely: Int[np.ndarray, " n"]
    probability: Float[np.ndarray, " n"]
    agreement: float
    by: str


def suspects(
    representations: Mapping[str, Float[np.ndarray, "n _"]],
    labels: Int[np.ndarray, " n"],
    *,
    seed: int = 0,
) -> Suspects:
    """Ranks examples by how far their labels are to be doubted.

    For each representation, a logistic regression is fitted without a fold of the examples and
    predicts the fold. The representation and its regularisation with the lowest cross-entropy of
    the given labels are used.

    Args:
      representations: features of the examples by name, ``[n, d]`` each, from a network that has
        not been trained on these labels.
      labels: ``[n]``, the given classes, 0 to k - 1, at least two examples of each.
      seed: seed of the folds.

    Raises:
      ValueError: there are fewer than two classes, or a class has a single example.
    """
    sizes = np.bincount(labels)
    if len(sizes) < 2 or sizes.min() < 2:
        raise ValueError(
            f"labels: got classes of {sizes.tolist()} examples, wanted two or more classes of two "
            "or more examples each"
        )
    best, found, by = np.inf, np.zeros((0, 0)), ""
    for name, features in representations.items():
        for strength in _STRENGTHS:
            shares = out_of_fold(features, labels, strength=strength, seed=seed)
            own = shares[np.arange(len(labels)), labels]
            loss = -float(np.mean(np.log(np.maximum(own, 1e-12))))
            if loss < best:
                best, found, by = loss, shares, name
    own = found[np.arange(len(labels)), labels]
    likely = found.argmax(axis=1)
    highest = found.max(axis=1)
    agreement = float(np.mean(likely == labels))
    return Suspects(np.argsort(own, kind="stable"), own, likely, highest, agreement, by)


def out_of_fold(
    features: Float[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    *,
    strength: float,
    seed: int = 0,
) -> Float[np.ndarray, "n k"]:
    """Predicts each example's class by a logistic regression that has not seen it.

    Args:
      features: ``[n, d]``; they are standardised and reduced to 128 principal components.
      labels: ``[n]``, classes, 0 to k - 1.
      strength: inverse strength of the regularisation.
      seed: seed of the folds.

    Returns:
      ``[n, k]``, probabilities.
    """
    selection, steps = sklearn("model_selection"), sklearn("pipeline")
    folds = min(FOLDS, int(np.bincount(labels).min()))
    shares = np.zeros((len(labels), int(labels.max()) + 1))
    split = selection.StratifiedKFold(folds, shuffle=True, random_state=seed)
    for kept, left in split.split(features, labels):
        width = min(_WIDTH, features.shape[1], len(kept) - 1)
        regression = steps.make_pipeline(
            sklearn("preprocessing").StandardScaler(),
            sklearn("decomposition").PCA(width, random_state=seed),
            sklearn("linear_model").LogisticRegression(C=strength, max_iter=1000),
        )
        regression.fit(features[kept], labels[kept])
        shares[np.ix_(left, regression.classes_)] = regression.predict_proba(features[left])
    return shares
