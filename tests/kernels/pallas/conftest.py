"""Helpers of the tests of Pallas kernels: lowering without a device, and Mosaic's interpreter."""

import jax
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

DEVICES = {
    "cuda": (AbstractDevice("NVIDIA H200", 132, "gpu"), "mosaic_gpu_v2"),
    "tpu": (AbstractDevice("TPU v5 lite", 1, "tpu"), "tpu_custom_call"),
}


@pytest.fixture
def kernels_in():
    """Counts the kernels in a function lowered for a platform that need not be there."""

    def count(platform, fn, *arguments):
        device, call = DEVICES[platform]
        with use_abstract_mesh(AbstractMesh((1,), ("_",), abstract_device=device)):
            traced = jax.jit(fn).trace(*arguments)
            return traced.lower(lowering_platforms=(platform,)).as_text().count(f"@{call}")

    return count


@pytest.fixture
def mosaic():
    """Parameters of Mosaic GPU's interpreter, which jax keeps private."""
    params = pytest.importorskip("jax._src.pallas.mosaic_gpu.interpret.params")
    return params.InterpretGPUParams()
