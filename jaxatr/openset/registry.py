"""Scores by name: the package's own, found by their place, and others by an import path."""

from collections.abc import Collection
from typing import Any

from jaxatr.openset.detector import Detector
from jaxatr.openset.score import NOT_NEEDS, Score
from jaxatr.parts import Parts
from jaxatr.resolve import nearest

DEFAULT = ("softmax", "mls", "cbc")
"""The score of the paper's method, and two scores that need only the network's logits."""


#: Scores by name, the default ones first.
SCORES: Parts[Score] = Parts(
    "jaxatr.openset.detectors", Score, field="scores", variants=True, first=DEFAULT
)


def create(name: str, **options: Any) -> Detector:
    """Creates a detector, which is fitted to arrays and computes a score of arrays.

    >>> import numpy as np
    >>> detector = create("knn", k=1).fit(features=np.eye(3), labels=[0, 1, 2])
    >>> detector.score(features=np.eye(3)[:1]).tolist()
    [-0.0]

    Args:
      name: name of a score, or the import path ``my.module:SCORE`` of one outside the package.
      **options: values for the parameters of its functions that have a default, such as
        ``percentile``.

    Raises:
      ValueError: the score or an option does not exist.
    """
    return Detector(SCORES.find(name).with_options(options))


def list_scores(needs: str | Collection[str] | None = None) -> list[str]:
    """Lists the names of the package's scores.

    Args:
      needs: names of arrays, such as ``"features"``, for the scores that need exactly these besides
        logits, labels and head; None for all scores.

    Raises:
      ValueError: no score needs an array of this name.
    """
    if needs is None:
        return list(SCORES)
    wanted = {needs} if isinstance(needs, str) else {*needs}
    known = NOT_NEEDS.union(*(score.all_needs for score in SCORES.values()))
    for name in sorted(wanted - known):
        choice = ", ".join(sorted(known - NOT_NEEDS))
        raise ValueError(f"needs: got {name!r}, wanted some of {choice}{nearest(name, known)}")
    return [name for name, score in SCORES.items() if score.all_needs == wanted - NOT_NEEDS]


def choose_scores(wanted: str | Collection[str]) -> tuple[Score, ...]:
    """Looks up scores by name.

    Args:
      wanted: comma-separated names, or a list of names. ``"all"`` selects every score of the
        package that needs no training of its own. A name with a colon, ``my.module:SCORE``, is the
        import path of a score outside the package.

    Raises:
      ValueError: a score does not exist, two have the same name, or the list is empty.
    """
    if wanted in ("all", ["all"], ("all",)):
        return tuple(score for score in SCORES.values() if score.training is None)
    listed = wanted.split(",") if isinstance(wanted, str) else wanted
    paths = dict.fromkeys(name.strip() for name in listed if name.strip())
    if not paths:
        wanted = ", ".join(SCORES)
        raise ValueError(f"scores: got none, wanted 'all', or some of {wanted} and my.module:NAME")
    chosen: dict[str, Score] = {}
    for path in paths:
        score = SCORES.find(path)
        if score.name in chosen:
            raise ValueError(f"scores: two of {', '.join(paths)} have the name {score.name!r}")
        chosen[score.name] = score
    return tuple(chosen.values())
