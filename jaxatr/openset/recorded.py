"""Scores and mistakes of an evaluation, from the arrays that it recorded."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxatr.openset.outputs import UNKNOWN, Outputs
from jaxatr.openset.score import Scale, Score
from jaxatr.openset.scores import SCORES
from jaxatr.typing import Int, Shaped

MISTAKES = ("misclassified", "accepted", "rejected")
"""A known example in the wrong class, an unknown one taken for known, a known one refused."""


class Shown(NamedTuple):
    """The facts of a score that tables and reports need.

    Attributes:
      title: its name in print.
      scale: its unit.
    """

    title: str
    scale: Scale = "plain"


def further_scores(scores: Iterable[Score]) -> dict[str, dict[str, str]]:
    """Lists title and scale of scores from outside the package, for ``evaluation.json``.

    A report can be written where their modules are not at hand.
    """
    outside = (score for score in scores if score.name not in SCORES)
    return {score.name: Shown(score.title, score.scale)._asdict() for score in outside}


def shown(name: str, evaluation: Mapping[str, Any] | None = None) -> Shown:
    """Finds title and scale of a recorded score; the name is the title of one that is not known.

    Args:
      name: of the score.
      evaluation: the content of ``evaluation.json``, for a score from outside the package.
    """
    if name in SCORES:
        return Shown(SCORES[name].title, SCORES[name].scale)
    recorded = (evaluation or {}).get("further_scores", {})
    return Shown(**recorded[name]) if name in recorded else Shown(name)


def recorded_scores(
    arrays: Mapping[str, np.ndarray], names: Iterable[str]
) -> dict[str, Shaped[np.ndarray, " n"]]:
    """Finds the scores of the n test examples, by name.

    Args:
      arrays: of ``scores.npz``. A score is the array ``test_score_NAME``. Folders of an earlier
        version have none for scores that follow from the logits, which are computed here.
      names: of the wanted scores.

    Raises:
      ValueError: a score is neither recorded nor one that follows from the logits.
    """
    logits, open_logits = arrays["test_logits"], arrays["test_open_logits"]
    outputs = Outputs(logits, open_logits, arrays["test_labels"])
    scores = {}
    for name in names:
        if (values := arrays.get(f"test_score_{name}")) is not None:
            scores[name] = values
        elif name in SCORES and _follows(SCORES[name]):
            scores[name] = SCORES[name](None, outputs)
        else:
            raise ValueError(f"the score {name!r} has no array test_score_{name} in scores.npz")
    return scores


def _follows(score: Score) -> bool:
    """Tells whether a score is a function of the recorded logits alone."""
    fixed = not score.fitted and not score.calibrated and score.training is None
    return fixed and score.all_needs <= {"open_logits"}


def recorded_predictions(arrays: Mapping[str, np.ndarray], score: str) -> Int[np.ndarray, " n"]:
    """Finds the known class that is nearest to each test example.

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
    """Finds where a score is wrong with the most confidence, for each kind of :data:`MISTAKES`.

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
    """Finds the test examples that any of the scores gets most confidently wrong, in order.

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
