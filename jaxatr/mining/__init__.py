"""Which examples a loss should compare: fixed-size indices and a mask, chosen over a data set."""

from jaxatr.mining.quadruplets import Method, Quadruplets, SiblingClass, quadruplets

__all__ = ["Method", "Quadruplets", "SiblingClass", "quadruplets"]
