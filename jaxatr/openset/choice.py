"""Lookup of scores by name."""

from collections.abc import Collection

from jaxatr.openset.score import Score
from jaxatr.openset.scores import SCORES
from jaxatr.resolve import nearest, resolve


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
    score = resolve(path)
    if not isinstance(score, Score):
        raise ValueError(f"scores: {path} is a {type(score).__name__}, wanted a Score")
    if SCORES.get(score.name, score) is not score:
        raise ValueError(f"scores: {path} has the name of a built-in score, {score.name!r}")
    return score


def _choice() -> str:
    return f"'all', or some of {', '.join(SCORES)} and my.module:SCORE"
