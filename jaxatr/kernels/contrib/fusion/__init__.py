"""Fusion plans: sequences of operations computed as one."""

from jaxatr.kernels.contrib.fusion.operations import (
    Activation,
    BatchNorm,
    Bias,
    Convolution,
    FusionProblem,
    Residual,
)
from jaxatr.kernels.contrib.fusion.plan import CompiledPlan, Fusion, FusionPlan, supported_fusions

__all__ = [
    "Activation",
    "BatchNorm",
    "Bias",
    "CompiledPlan",
    "Convolution",
    "Fusion",
    "FusionPlan",
    "FusionProblem",
    "Residual",
    "supported_fusions",
]
