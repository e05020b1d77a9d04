"""Explains predictions: saliency maps of the pixels that support the predicted class.

- :mod:`~jaxatr.explain.methods`: the methods, one module each, from images to saliency maps.
- :mod:`~jaxatr.explain.measures`: measures of the quality of saliency maps.
- :mod:`~jaxatr.explain.target`: loads the network to explain from a run, a file or a function.
- :mod:`~jaxatr.explain.explainer`: a network and a method, ready to explain images.
- :mod:`~jaxatr.explain.agreement`: how well the maps of several methods agree.
"""

from jaxatr.explain.agreement import Agreement, agreement
from jaxatr.explain.explainer import Explainer, Explanation, explain_all, load_explainers
from jaxatr.explain.method import Method
from jaxatr.explain.methods import METHODS, find_method, find_methods, method_title
from jaxatr.explain.pictures import Pictures, describe, with_evidence
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
    "with_evidence",
]
