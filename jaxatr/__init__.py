"""Target recognition in images with JAX.

What is it, do we know it at all, what else looks like it, and which pixels say so.

:func:`train` and :func:`evaluate` run a configuration; :func:`load` gives what predicts with a run:
a :class:`Recogniser`, a :class:`Retriever` …; an :class:`Explainer` shows which pixels said so.
"""

import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxatr.explain import Explainer
    from jaxatr.runs import evaluate_run as evaluate
    from jaxatr.runs import load_predictor as load
    from jaxatr.runs import train_run as train
    from jaxatr.tasks.embedding.predictor import Retriever
    from jaxatr.tasks.open_set.predictor import Recogniser

__version__ = "0.1.0"
__all__ = ["Explainer", "Recogniser", "Retriever", "evaluate", "load", "train"]

_PATHS = {
    "Explainer": "jaxatr.explain:Explainer",
    "Recogniser": "jaxatr.tasks.open_set.predictor:Recogniser",
    "Retriever": "jaxatr.tasks.embedding.predictor:Retriever",
    "evaluate": "jaxatr.runs:evaluate_run",
    "load": "jaxatr.runs:load_predictor",
    "train": "jaxatr.runs:train_run",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used: importing the package stays fast."""
    if name not in _PATHS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from jaxatr.resolve import resolve

    found = globals()[name] = resolve(_PATHS[name])
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(types.ModuleType):
    """The package, whose functions keep their names from the modules ``train`` and ``evaluate``."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _PATHS and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
