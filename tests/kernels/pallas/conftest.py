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


# A clean run says little about waiting for a product: the interpreter multiplies at once.
STRICT = {"detect_races": True, "out_of_bounds_reads": "raise", "uninitialized_memory": "nan"}


@pytest.fixture
def mosaic(monkeypatch):
    """Parameters of Mosaic GPU's interpreter, which jax keeps private; no race may be found."""
    interpret = pytest.importorskip("jax._src.pallas.mosaic_gpu.interpret")
    from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks, interpret_pallas_call, params

    del interpret
    # Of a reference without a memory space: global, which the interpreter knows since jax 0.12.
    known = gpu_callbacks.is_gmem_memory_space
    monkeypatch.setattr(gpu_callbacks, "is_gmem_memory_space", lambda s: s is None or known(s))
    yield params.InterpretGPUParams(**STRICT)
    assert not interpret_pallas_call.get_races().races_found


@pytest.fixture
def tpu_interpreter():
    """Parameters of the TPU's interpreter; copies happen as late as they may, no race is found."""
    pltpu = pytest.importorskip("jax.experimental.pallas.tpu")
    from jax._src.pallas.mosaic.interpret import interpret_pallas_call

    yield pltpu.InterpretParams(**STRICT, dma_execution_mode="on_wait")
    assert not interpret_pallas_call.races.races_found
