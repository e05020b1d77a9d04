"""One Pallas kernel for NVIDIA Hopper per step of an LSTM, for inference."""

from functools import partial

from jaxatr.kernels.ops.recurrent import pallas
from jaxatr.kernels.ops.recurrent.algorithm import Algorithm

PART = Algorithm(
    partial(pallas.applies, "hopper"),
    partial(pallas.run, "hopper"),
    device="hopper",
    backward=False,  # the derivative is that of gemm
    version=3,  # does not write gates that are not needed
)
