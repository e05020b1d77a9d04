"""Fixtures for the Pallas kernels: lowering without a device, and the interpreters."""

import jax
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

DEVICES = {
    "cuda": (AbstractDevice("NVIDIA H200", 132, "gpu"), "mosaic_gpu_v2"),
    "tpu": (AbstractDevice("TPU v5 lite", 1, "tpu"), "tpu_custom_call"),
}


@pytest.fixture
def kernels_in():
    """Counts the kernels in a function lowered for a platform that need not be present."""

    def count(platform, fn, *arguments):
        device, call = DEVICES[platform]
        with use_abstract_mesh(AbstractMesh((1,), ("_",), abstract_device=device)):
            traced = jax.jit(fn).trace(*arguments)
            return traced.lower(lowering_platforms=(platform,)).as_text().count(f"@{call}")

    return count


# The interpreter multiplies immediately, so a missing wait for a product is not detected.
STRICT = {"detect_races": True, "out_of_bounds_reads": "raise", "uninitialized_memory": "nan"}


@pytest.fixture
def mosaic(monkeypatch):
    """Yields parameters of Mosaic GPU's interpreter (private in jax); fails if it finds a race."""
    interpret = pytest.importorskip("jax._src.pallas.mosaic_gpu.interpret")
    from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks, interpret_pallas_call, params

    del interpret
    # Before jax 0.12 the interpreter does not treat references without a memory space as global.
    known = gpu_callbacks.is_gmem_memory_space
    monkeypatch.setattr(gpu_callbacks, "is_gmem_memory_space", lambda s: s is None or known(s))
    yield params.InterpretGPUParams(**STRICT)
    assert not interpret_pallas_call.get_races().races_found


@pytest.fixture
def tpu_interpreter():
    """Yields parameters of the TPU's interpreter, with late copies; fails if it finds a race."""
    pltpu = pytest.importorskip("jax.experimental.pallas.tpu")
    from jax._src.pallas.mosaic.interpret import interpret_pallas_call

    yield pltpu.InterpretParams(**STRICT, dma_execution_mode="on_wait")
    assert not interpret_pallas_call.races.races_found
