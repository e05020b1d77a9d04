"""The scores of how known an example is: every module of this folder gives one as ``SCORE``."""

import importlib
import pkgutil
from collections.abc import Collection

from jaxatr.openset.score import Score
from jaxatr.resolve import nearest, resolve

DEFAULT = ("softmax", "mls", "cbc")
"""The score of the paper's method, and the two that need nothing but its network's logits."""


def _scores() -> dict[str, Score]:
    modules = (
        importlib.import_module(f"{__name__}.{found.name}")
        for found in pkgutil.iter_modules(__path__)
    )
    found = {module.SCORE.name: module.SCORE for module in modules}
    return {name: found[name] for name in dict.fromkeys((*DEFAULT, *found))}


#: By name, the default ones first.
SCORES: dict[str, Score] = _scores()


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
