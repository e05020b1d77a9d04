"""Operations of MIOpen that no configuration of jaxatr reaches.

Local response norm, softmax, CTC and tensor operations as problems of the find step, and fusion
plans. The rest of the package must not import this room.
"""

from jaxatr.kernels.contrib import ctc, fusion, response_norm, softmax, tensor
from jaxatr.kernels.contrib.response_norm import local_response_norm

__all__ = ["ctc", "fusion", "local_response_norm", "response_norm", "softmax", "tensor"]
