"""Finds the scores that a user names."""

from collections.abc import Collection

from jaxatr.openset.score import Score
from jaxatr.openset.scores import SCORES
from jaxatr.resolve import nearest, resolve


def choose_scores(wanted: str | Collection[str]) -> tuple[Score, ...]:
    """Finds scores by their names.

    Args:
      wanted: names with commas between them, or a list of names; ``"all"`` is every score of the
        package that needs no training of its own. A name with a colon, ``my.module:SCORE``, is that
        of a score outside of the package.

    Raises:
      ValueError: there is no such score, two have the same name, or none is named.
    """
    if wanted == "all":
        return tuple(score for score in SCORES.values() if score.training is None)
    listed = wanted.split(",") if isinstance(wanted, str) else wanted
    paths = dict.fromkeys(name.strip() for name in listed if name.strip())
    if not paths:
        raise ValueError(f"scores: got none, wanted {_choice()}")
    chosen: dict[str, Score] = {}
    for path in paths:
        score = _find(path)
        if score.name in chosen:
            raise ValueError(f"scores: two of {', '.join(paths)} have the name {score.name!r}")
        chosen[score.name] = score
    return tuple(chosen.values())


def _find(path: str) -> Score:
    if ":" not in path:
        if path not in SCORES:
            raise ValueError(f"scores: got {path!r}, wanted {_choice()}{nearest(path, SCORES)}")
        return SCORES[path]
    found = resolve(path)
    if not isinstance(found, Score):
        raise ValueError(f"scores: {path} is a {type(found).__name__}, wanted a Score")
    if SCORES.get(found.name, found) is not found:
        raise ValueError(f"scores: {path} has the name of one of the package, {found.name!r}")
    return found


def _choice() -> str:
    return f"'all', or some of {', '.join(SCORES)} and my.module:SCORE"
