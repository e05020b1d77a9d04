"""Open-set recognition of single chips (Safaei et al. 2023)."""

from jaxatr.tasks.open_set.task import OpenSet

__all__ = ["OpenSet"]
