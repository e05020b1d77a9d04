"""Scores by name: the package's own, found by their place, and others by an import path."""

import importlib
import pkgutil
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any

from jaxatr.openset import detectors
from jaxatr.openset.detector import Detector
from jaxatr.openset.score import Score
from jaxatr.resolve import nearest, resolve

DEFAULT = ("softmax", "mls", "cbc")
"""The score of the paper's method, and two scores that need only the network's logits."""


class Scores(Mapping[str, Score]):
    """The package's scores by name, the default ones first.

    A score's module is imported when the score is asked for, and all of them to list their names.
    """

    def __getitem__(self, name: str) -> Score:
        """Returns the score of a name."""
        parts = name.split("_")
        for count in range(len(parts), 0, -1):  # conflabel_detector before conflabel
            file = "_".join(parts[:count])
            if file in _files():
                found = {score.name: score for score in declared(_module(file))}
                if name in found:
                    return found[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        """Yields the names."""
        names = [score.name for module in modules() for score in declared(module)]
        return iter(dict.fromkeys((*DEFAULT, *names)))

    def __len__(self) -> int:
        """Returns the number of scores."""
        return sum(1 for _ in self)


#: Scores by name, the default ones first.
SCORES: Mapping[str, Score] = Scores()


def modules() -> tuple[ModuleType, ...]:
    """Returns the modules that declare the package's scores."""
    return tuple(map(_module, _files()))


def declared(module: ModuleType) -> tuple[Score, ...]:
    """Returns the scores that a module declares as ``SCORE`` or ``SCORES``."""
    return tuple(module.SCORES) if hasattr(module, "SCORES") else (module.SCORE,)


@cache
def _files() -> tuple[str, ...]:
    return tuple(found.name for found in pkgutil.iter_modules(detectors.__path__))


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{detectors.__name__}.{name}")


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
    return Detector(find(name).with_options(options))


def list_scores(needs: str | Collection[str] | None = None) -> list[str]:
    """Lists the names of the package's scores.

    Args:
      needs: names of arrays, such as ``"features"``, for the scores that need exactly these besides
        logits, labels and head; None for all scores.
    """
    if needs is None:
        return list(SCORES)
    wanted = {needs} if isinstance(needs, str) else {*needs}
    return [name for name, score in SCORES.items() if score.all_needs == wanted]


def find(path: str) -> Score:
    """Returns a score by its name or its import path.

    Raises:
      ValueError: the score does not exist, or takes the name of a built-in one.
    """
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
        score = find(path)
        if score.name in chosen:
            raise ValueError(f"scores: two of {', '.join(paths)} have the name {score.name!r}")
        chosen[score.name] = score
    return tuple(chosen.values())


def _choice() -> str:
    return f"'all', or some of {', '.join(SCORES)} and my.module:SCORE"
