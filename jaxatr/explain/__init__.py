"""Explanations: which pixels of an image speak for the class that a network predicts.

- :mod:`~jaxatr.explain.methods`: one file per method, from images to saliency maps.
- :mod:`~jaxatr.explain.measures`: what a map is worth.
- :mod:`~jaxatr.explain.target`: the network that is explained, from a run, a file or a function.
- :mod:`~jaxatr.explain.explainer`: a run and a method, ready for images.
"""

from jaxatr.explain.explainer import Explainer, Explanation
from jaxatr.explain.method import Method
from jaxatr.explain.methods import METHODS, find_method, find_methods, method_title
from jaxatr.explain.pictures import Pictures, describe
from jaxatr.explain.target import load_target
from jaxatr.training import Surrogate, Target

__all__ = [
    "METHODS",
    "Explainer",
    "Explanation",
    "Method",
    "Pictures",
    "Surrogate",
    "Target",
    "describe",
    "find_method",
    "find_methods",
    "load_target",
    "method_title",
]
