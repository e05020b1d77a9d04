"""Batch norm."""

from jaxatr.kernels.ops.batch_norm.api import MODES, Mode, batch_norm, batch_statistics

__all__ = ["MODES", "Mode", "batch_norm", "batch_statistics"]
