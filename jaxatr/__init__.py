"""Target recognition in images with JAX.

Open-set recognition (a known class or "unknown"), retrieval of similar images, and explanations.

:func:`train` trains a run from a configuration and :func:`evaluate` measures it. :func:`load`
returns the predictor of a finished run, such as a :class:`Recogniser`, a :class:`Retriever` or a
:class:`Detector`. An :class:`Explainer` shows which pixels support a prediction. :func:`trust`
allows a run of somebody else to name code outside the package.
"""

from typing import TYPE_CHECKING

from jaxatr import lazy

if TYPE_CHECKING:
    from jaxatr.explain import Explainer
    from jaxatr.recognition.recogniser import Recogniser
    from jaxatr.resolve import trust
    from jaxatr.runs import evaluate_run as evaluate
    from jaxatr.runs import load_predictor as load
    from jaxatr.runs import train_run as train
    from jaxatr.tasks.detection.predictor import Detector
    from jaxatr.tasks.embedding.predictor import Retriever

__version__ = "0.4.0"
__all__ = [
    "Detector",
    "Explainer",
    "Recogniser",
    "Retriever",
    "evaluate",
    "load",
    "train",
    "trust",
]

__getattr__ = lazy.attributes(
    __name__,
    {
        "Detector": "jaxatr.tasks.detection.predictor",
        "Explainer": "jaxatr.explain",
        "Recogniser": "jaxatr.recognition.recogniser",
        "Retriever": "jaxatr.tasks.embedding.predictor",
        "evaluate": "jaxatr.runs:evaluate_run",
        "load": "jaxatr.runs:load_predictor",
        "train": "jaxatr.runs:train_run",
        "trust": "jaxatr.resolve",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
