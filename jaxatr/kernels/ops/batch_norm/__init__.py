"""Batch norm."""

from jaxatr.kernels.ops.batch_norm.api import MODES, Mode, batch_norm, batch_statistics
from jaxatr.kernels.ops.batch_norm.operation import BatchNormProblem

__all__ = ["MODES", "Mode", "BatchNormProblem", "batch_norm", "batch_statistics"]
