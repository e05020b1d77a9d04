"""The scores of how known an example is: every module of this folder gives one as ``SCORE``."""

import importlib
import pkgutil

from jaxatr.openset.score import Score

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
