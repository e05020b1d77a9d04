"""Explanations: which pixels of an image speak for the class that a network predicts.

- :mod:`~jaxatr.explain.methods`: one file per method, from images to saliency maps.
- :mod:`~jaxatr.explain.measures`: what a map is worth.
- :mod:`~jaxatr.explain.target`: the network that is explained, from a run, a file or a function.
- :mod:`~jaxatr.explain.explainer`: a run and a method, ready for images.
- :mod:`~jaxatr.explain.agreement`: how far several maps of an image agree.
"""

from jaxatr.explain.agreement import Agreement, agreement
from jaxatr.explain.explainer import Explainer, Explanation, explain_all, load_explainers
from jaxatr.explain.method import Method
from jaxatr.explain.methods import METHODS, find_method, find_methods, method_title
from jaxatr.explain.pictures import Pictures, describe
from jaxatr.explain.target import load_target
from jaxatr.training import Surrogate, Target

__all__ = [
    "METHODS",
    "Agreement",
    "Explainer",
    "Explanation",
    "Method",
    "Pictures",
    "Surrogate",
    "Target",
    "agreement",
    "describe",
    "explain_all",
    "find_method",
    "find_methods",
    "load_explainers",
    "load_target",
    "method_title",
]
