"""Reads scores and mistakes from the arrays that an evaluation recorded."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxatr.openset import SCORES, UNKNOWN, Outputs, Scale, Score
from jaxatr.typing import Int, Shaped

MISTAKES = ("misclassified", "accepted", "rejected")
"""Kinds of mistakes: known examples assigned to the wrong class, unknown ones accepted, known ones
rejected."""


class ScoreStyle(NamedTuple):
    """How tables and reports show a score.

    Attributes:
      title: its display name.
      scale: its unit.
    """

    title: str
    scale: Scale = "plain"


def further_scores(scores: Iterable[Score]) -> dict[str, dict[str, str]]:
    """Returns the title and scale of scores from outside the package, for ``evaluation.json``.

    They let a report be written without the modules that define the scores.
    """
    outside = (score for score in scores if score.name not in SCORES)
    return {score.name: ScoreStyle(score.title, score.scale)._asdict() for score in outside}


def shown(name: str, evaluation: Mapping[str, Any] | None = None) -> ScoreStyle:
    """Returns the title and scale of a recorded score; an unknown score's title is its name.

    Args:
      name: name of the score.
      evaluation: the content of ``evaluation.json``, for scores from outside the package.
    """
    if name in SCORES:
        return ScoreStyle(SCORES[name].title, SCORES[name].scale)
    recorded = (evaluation or {}).get("further_scores", {})
    return ScoreStyle(**recorded[name]) if name in recorded else ScoreStyle(name)


def label(name: str, evaluation: Mapping[str, Any] | None = None) -> str:
    """Returns a score's title, with the name that ``--score`` takes unless the title spells it.

    Args:
      name: name of the score.
      evaluation: the content of ``evaluation.json``, for scores from outside the package.

    >>> label("vim"), label("knn"), label("spatial_stage2"), label("MyScore")
    ('ViM', 'k-NN', 'map of stage 2 (spatial_stage2)', 'MyScore')
    """
    title = shown(name, evaluation).title
    spelled = "".join(filter(str.isalnum, title)).lower() == name.replace("_", "").lower()
    return title if spelled else f"{title} ({name})"


def recorded_scores(
    arrays: Mapping[str, np.ndarray], names: Iterable[str]
) -> dict[str, Shaped[np.ndarray, " n"]]:
    """Returns the scores of the n test examples, by name.

    Args:
      arrays: the arrays of ``scores.npz``, in which ``test_score_NAME`` is a score. Runs of an
        earlier version lack scores that are functions of the logits; these are computed here.
      names: names of the scores.

    Raises:
      ValueError: a score is neither recorded nor a function of the logits.
    """
    logits, open_logits = arrays["test_logits"], arrays["test_open_logits"]
    outputs = Outputs(logits, open_logits, arrays["test_labels"])
    scores = {}
    for name in names:
        if (values := arrays.get(f"test_score_{name}")) is not None:
            scores[name] = values
        elif name in SCORES and _needs_logits_only(SCORES[name]):
            scores[name] = SCORES[name](None, outputs)
        else:
            raise ValueError(f"the score {name!r} has no array test_score_{name} in scores.npz")
    return scores


def _needs_logits_only(score: Score) -> bool:
    """Checks whether a score is a function of the recorded logits alone."""
    fixed = not score.fitted and not score.calibrated and score.training is None
    return fixed and score.all_needs <= {"open_logits"}


def recorded_predictions(
    arrays: Mapping[str, np.ndarray], score: str, decides: str | None = None
) -> Int[np.ndarray, " n"]:
    """Returns the known class predicted for each test example.

    Args:
      arrays: the arrays of ``scores.npz``.
      score: name of the score. A score that names the class or has its own network has predictions
        of its own.
      decides: name of the score whose predictions are those of the decision, from the head or the
        gallery, whichever the run chose; None for no score. Decisions about the single chips of
        tracks are no predictions for the tracks.
    """
    nearest = arrays.get("decided_nearest")
    if score == decides and nearest is not None and len(nearest) == len(arrays["test_labels"]):
        return nearest
    own = arrays.get(f"test_predicted_{score}")
    return arrays["test_logits"].argmax(axis=-1) if own is None else own


def confident_mistakes(
    labels: Int[np.ndarray, " n"],
    predicted: Int[np.ndarray, " n"],
    score: Shaped[np.ndarray, " n"],
    *,
    most: int = 24,
) -> dict[str, Int[np.ndarray, " _"]]:
    """Finds a score's most confident mistakes, for each kind of :data:`MISTAKES`.

    No threshold is applied, so that one record serves every γ. At a given threshold, ``accepted``
    examples that reach it and ``rejected`` ones that do not are the mistakes.

    Args:
      labels: ``[n]``, known class or :data:`~jaxatr.openset.UNKNOWN`.
      predicted: ``[n]``, the predicted known class.
      score: ``[n]``, higher is more known.
      most: largest number of mistakes of each kind.

    Returns:
      Row numbers, worst first.
    """
    known = labels != UNKNOWN
    ascending = np.argsort(score, kind="stable")
    descending = ascending[::-1]
    return {
        "misclassified": descending[(known & (predicted != labels))[descending]][:most],
        "accepted": descending[~known[descending]][:most],
        "rejected": ascending[known[ascending]][:most],
    }


def worst_mistakes(
    arrays: Mapping[str, np.ndarray], names: Iterable[str], decides: str | None = None
) -> Int[np.ndarray, " _"]:
    """Finds the test examples that any of the scores gets most confidently wrong.

    Args:
      arrays: the arrays of ``scores.npz``.
      names: names of the scores.
      decides: see :func:`recorded_predictions`.

    Returns:
      Row numbers in ascending order.
    """
    scores = recorded_scores(arrays, names)
    found = [
        rows
        for name, score in scores.items()
        for rows in confident_mistakes(
            arrays["test_labels"], recorded_predictions(arrays, name, decides), score
        ).values()
    ]
    return np.unique(np.concatenate(found))
