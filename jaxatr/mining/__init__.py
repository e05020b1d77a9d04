"""Which examples a loss should compare: fixed-size indices and a mask, chosen over a data set."""

from jaxatr.mining.quadruplets import Quadruplets, quadruplets

__all__ = ["Quadruplets", "quadruplets"]
