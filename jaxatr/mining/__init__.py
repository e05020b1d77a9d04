"""Selection, over a whole data set, of the examples that a loss compares."""

from jaxatr.mining.quadruplets import Method, Quadruplets, SiblingClass, quadruplets

__all__ = ["Method", "Quadruplets", "SiblingClass", "quadruplets"]
