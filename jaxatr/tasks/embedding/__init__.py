"""Metric learning: an embedding in which the nearest chips are of the same class."""

from jaxatr.tasks.embedding.task import Embedding

__all__ = ["Embedding"]
