"""The package's scores, discovered automatically.

Every module of this folder defines one score as ``SCORE``, or several variants, such as one for
each stage of the network, as ``SCORES``. The first line of the module's docstring describes them in
the table of the documentation.
"""

import importlib
import pkgutil
from types import ModuleType

from jaxatr.openset.score import Score

DEFAULT = ("softmax", "mls", "cbc")
"""The score of the paper's method, and two scores that need only the network's logits."""


def _by_module() -> dict[ModuleType, tuple[Score, ...]]:
    modules = (
        importlib.import_module(f"{__name__}.{found.name}")
        for found in pkgutil.iter_modules(__path__)
    )
    return {module: _of(module) for module in modules}


def _of(module: ModuleType) -> tuple[Score, ...]:
    return tuple(module.SCORES) if hasattr(module, "SCORES") else (module.SCORE,)


def _by_name() -> dict[str, Score]:
    listed = [score for scores in BY_MODULE.values() for score in scores]
    found = {score.name: score for score in listed}
    if len(found) < len(listed):
        names = [score.name for score in listed]
        raise ValueError(f"scores: two have the name {max(names, key=names.count)!r}")
    return {name: found[name] for name in dict.fromkeys((*DEFAULT, *found))}


#: Scores by module.
BY_MODULE: dict[ModuleType, tuple[Score, ...]] = _by_module()

#: Scores by name, the default ones first.
SCORES: dict[str, Score] = _by_name()
