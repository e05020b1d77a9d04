"""Batch norm."""

from jaxatr.kernels.ops.batch_norm.api import MODES, Mode, batch_norm, batch_statistics
from jaxatr.kernels.ops.batch_norm.operation import Problem

__all__ = ["MODES", "Mode", "Problem", "batch_norm", "batch_statistics"]
