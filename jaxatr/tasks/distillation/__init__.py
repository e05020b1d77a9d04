"""Attentive knowledge distillation of a surrogate that explains a trained network."""

from jaxatr.tasks.distillation.task import Distillation

__all__ = ["Distillation"]
