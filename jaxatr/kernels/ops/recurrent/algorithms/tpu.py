"""One Pallas kernel for TPUs per step of an LSTM."""

from functools import partial

from jaxatr.kernels.ops.recurrent import pallas
from jaxatr.kernels.ops.recurrent.algorithm import Algorithm

PART = Algorithm(
    partial(pallas.applies, "tpu"),
    partial(pallas.run, "tpu"),
    device="tpu",
    version=3,  # does not write gates that are not needed
)
