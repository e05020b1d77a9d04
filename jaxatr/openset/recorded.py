"""Scores and mistakes of an evaluation, from the arrays that it recorded."""

from collections.abc import Iterable, Mapping

import numpy as np

from jaxatr.openset.detectors import DEFAULT, fit_detectors
from jaxatr.openset.outputs import UNKNOWN, Outputs
from jaxatr.typing import Int, Shaped

MISTAKES = ("misclassified", "accepted", "rejected")
"""A known example in the wrong class, an unknown one taken for known, a known one refused."""


def recorded_scores(
    arrays: Mapping[str, np.ndarray], names: Iterable[str]
) -> dict[str, Shaped[np.ndarray, " n"]]:
    """Returns the scores of the n test examples, by name.

    Args:
      arrays: of ``scores.npz``. A score is the array ``test_score_NAME`` or, where there is none,
        follows from the network's outputs.
      names: of the wanted scores.

    Raises:
      ValueError: a score is neither recorded nor one that follows from the outputs.
    """
    outputs = Outputs(*(arrays[f"test_{field}"] for field in ("logits", "open_logits", "labels")))
    computed, scores = fit_detectors(DEFAULT).scores, {}
    for name in names:
        if (values := arrays.get(f"test_score_{name}")) is not None:
            scores[name] = values
        elif name in computed:
            scores[name] = np.asarray(computed[name](outputs))
        else:
            raise ValueError(f"the score {name!r} has no array test_score_{name} in scores.npz")
    return scores


def recorded_predictions(arrays: Mapping[str, np.ndarray], score: str) -> Int[np.ndarray, " n"]:
    """Returns the known class that is nearest each test example.

    Args:
      arrays: of ``scores.npz``.
      score: name of the score that goes with it: one that comes from a network of its own has
        predictions of its own.
    """
    own = arrays.get(f"test_predicted_{score}")
    return arrays["test_logits"].argmax(axis=-1) if own is None else own


def confident_mistakes(
    labels: Int[np.ndarray, " n"],
    predicted: Int[np.ndarray, " n"],
    score: Shaped[np.ndarray, " n"],
    *,
    most: int = 24,
) -> dict[str, Int[np.ndarray, " _"]]:
    """Returns where a score is wrong with the most confidence, for each kind of :data:`MISTAKES`.

    No threshold is applied: of the accepted ones those are mistakes that reach it, of the rejected
    ones those that do not. So one recording serves every γ.

    Args:
      labels: ``[n]``, known class or :data:`~jaxatr.openset.UNKNOWN`.
      predicted: ``[n]``, the known class that is nearest.
      score: ``[n]``, higher = more known.
      most: how many of a kind at most.

    Returns:
      Row numbers, the worst first.
    """
    known = labels != UNKNOWN
    ascending = np.argsort(score, kind="stable")
    descending = ascending[::-1]
    return {
        "misclassified": descending[(known & (predicted != labels))[descending]][:most],
        "accepted": descending[~known[descending]][:most],
        "rejected": ascending[known[ascending]][:most],
    }


def worst_mistakes(arrays: Mapping[str, np.ndarray], names: Iterable[str]) -> Int[np.ndarray, " _"]:
    """Returns the test examples that any of the scores gets most confidently wrong, in order.

    Args:
      arrays: of ``scores.npz``.
      names: of the scores.
    """
    scores = recorded_scores(arrays, names)
    found = [
        rows
        for name, score in scores.items()
        for rows in confident_mistakes(
            arrays["test_labels"], recorded_predictions(arrays, name), score
        ).values()
    ]
    return np.unique(np.concatenate(found))
