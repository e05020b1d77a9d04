"""Metric learning of an embedding in which neighbouring chips have the same class."""

from jaxatr.tasks.embedding.task import Embedding

__all__ = ["Embedding"]
