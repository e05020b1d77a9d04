"""Conversion of weights from and to other libraries."""

from jaxatr.kernels.ops.recurrent.convert.flax import from_flax, to_flax
from jaxatr.kernels.ops.recurrent.convert.onnx import from_onnx, to_onnx
from jaxatr.kernels.ops.recurrent.convert.torch import from_torch, to_torch

__all__ = ["from_flax", "from_onnx", "from_torch", "to_flax", "to_onnx", "to_torch"]
