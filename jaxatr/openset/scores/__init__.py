"""The scores of how known an example is, found by themselves.

Every module of this folder gives one as ``SCORE``, or several that differ in one thing, such as the
stage of the network that they look at, as ``SCORES``.
"""

import importlib
import pkgutil
from types import ModuleType

from jaxatr.openset.score import Score

DEFAULT = ("softmax", "mls", "cbc")
"""The score of the paper's method, and the two that need nothing but its network's logits."""


def _scores() -> dict[str, Score]:
    modules = (
        importlib.import_module(f"{__name__}.{found.name}")
        for found in pkgutil.iter_modules(__path__)
    )
    listed = [score for module in modules for score in _of(module)]
    found = {score.name: score for score in listed}
    if len(found) < len(listed):
        names = [score.name for score in listed]
        raise ValueError(f"scores: two have the name {max(names, key=names.count)!r}")
    return {name: found[name] for name in dict.fromkeys((*DEFAULT, *found))}


def _of(module: ModuleType) -> tuple[Score, ...]:
    return tuple(module.SCORES) if hasattr(module, "SCORES") else (module.SCORE,)


#: By name, the default ones first.
SCORES: dict[str, Score] = _scores()
