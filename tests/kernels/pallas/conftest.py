"""Fixtures for the Pallas kernels: lowering without a device, and the interpreters."""

import inspect

import jax
import numpy as np
import pytest
from jax._src.pallas.mosaic.interpret import shared_memory, utils
from jax._src.state.types import TransposeTransform
from jax.experimental.pallas import mosaic_gpu as plgpu
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


# The interpreter multiplies and copies immediately, and does not compare a thread's reads with its
# own copies, so missing waits for a product, a store or a thread's own load are not detected.
STRICT = {"detect_races": True, "out_of_bounds_reads": "raise", "uninitialized_memory": "nan"}


def _reads_beyond_the_end(gpu_callbacks):
    """Returns the interpreter's rule with zeros for TMA's copies from global memory, as on a GPU.

    The interpreter has one rule for all reads; those of shared memory keep it.
    """
    rule = gpu_callbacks._handle_out_of_bounds_read
    home = gpu_callbacks if hasattr(gpu_callbacks, "get_memory_space_idx") else gpu_callbacks.memory
    space = home.get_memory_space_idx(plgpu.GMEM)

    def read(found, wanted, shape, dtype, key, *rest):
        if key.memory_space_id != space:
            return rule(found, wanted, shape, dtype, key, *rest)
        values = np.zeros(wanted, dtype)
        if found is not None:
            values[tuple(map(slice, found.shape))] = found
        return values

    return read


def _completed_products(gpu_callbacks):
    """Returns the interpreter's product with support for transposed operands."""
    product = gpu_callbacks.wgmma

    def split(transforms):
        plain = tuple(t for t in transforms if not isinstance(t, TransposeTransform))
        return plain, len(plain) < len(transforms)

    def wgmma(*, a_transforms, b_transforms, **rest):
        (of_a, a_turned), (of_b, b_turned) = split(a_transforms), split(b_transforms)
        if not (a_turned or b_turned):
            return product(a_transforms=a_transforms, b_transforms=b_transforms, **rest)
        memory = gpu_callbacks._get_shared_memory()
        thread = memory.get_global_thread_id(int(rest["device_id"]), int(rest["thread_id"]))

        def place(name, transforms):
            key = gpu_callbacks.HostAllocationKey.from_array(
                rest[f"{name}_allocation_key_as_array"]
            )
            plain = gpu_callbacks._remove_noop_transforms(transforms)
            return key, utils.to_range(jax.tree.map(int, plain)), thread

        total = place("acc", rest["acc_transforms"])
        a, b, before = (
            memory.get_buffer_content(*at)[0] for at in (place("a", of_a), place("b", of_b), total)
        )
        a, b = a.T if a_turned else a, b.T if b_turned else b
        after = before + np.matmul(a, b, dtype=rest["acc_dtype"])
        memory.store_buffer_content(*total[:2], after, thread)
        return rest["token"]

    return wgmma


@pytest.fixture
def mosaic(monkeypatch):
    """Yields parameters of Mosaic GPU's interpreter (private in jax); fails if it finds a race."""
    interpret = pytest.importorskip("jax._src.pallas.mosaic_gpu.interpret")
    from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks, interpret_pallas_call, params

    del interpret
    # Before jax 0.12 the interpreter does not treat references without a memory space as global.
    known = gpu_callbacks.is_gmem_memory_space
    monkeypatch.setattr(gpu_callbacks, "is_gmem_memory_space", lambda s: s is None or known(s))
    if "acc_dtype" in inspect.signature(gpu_callbacks.wgmma).parameters:  # before jax 0.12
        monkeypatch.setattr(gpu_callbacks, "wgmma", _completed_products(gpu_callbacks))
    else:  # It counts single stores where a GPU counts groups, which may be empty: wait for all.
        wait = gpu_callbacks.wait_smem_to_gmem
        monkeypatch.setattr(
            gpu_callbacks, "wait_smem_to_gmem", lambda *, n, **rest: wait(n=0, **rest)
        )
    outside = _reads_beyond_the_end(gpu_callbacks)
    monkeypatch.setattr(gpu_callbacks, "_handle_out_of_bounds_read", outside)
    # TMA stores the part of a tile within the array; the interpreter would store nothing.
    within = shared_memory.Buffer.set_in_bounds_portion
    monkeypatch.setattr(shared_memory.Buffer, "__setitem__", within)
    yield params.InterpretGPUParams(**STRICT)
    assert not interpret_pallas_call.get_races().races_found


@pytest.fixture
def tpu_interpreter():
    """Yields parameters of the TPU's interpreter, with late copies; fails if it finds a race."""
    pltpu = pytest.importorskip("jax.experimental.pallas.tpu")
    from jax._src.pallas.mosaic.interpret import interpret_pallas_call

    yield pltpu.InterpretParams(**STRICT, dma_execution_mode="on_wait")
    assert not interpret_pallas_call.races.races_found
