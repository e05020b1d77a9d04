"""Compiles for accelerators that are not present, from their descriptions.

XLA's CUDA plugin compiles for a described GPU down to ptxas and SASS, and libtpu for any TPU;
neither needs a device. ``jaxatr[aot]`` installs both. The tests in ``tests/aot`` and the table of
``compiled.py`` are based on this module.
"""

import os
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
from jax.experimental import topologies

NEEDS = {"cuda": "jax_cuda13_plugin", "tpu": "libtpu"}  # the compiler's package for each platform


class Described(NamedTuple):
    """The description of an accelerator.

    Attributes:
      platform: ``"cuda"`` or ``"tpu"``.
      kind: jax's name of the model.
      memory: bytes of memory of a device.
      topology: name of a topology of eight TPUs; empty for a GPU.
    """

    platform: str
    kind: str
    memory: int
    topology: str = ""


DEVICES = {
    "h100": Described("cuda", "NVIDIA H100 80GB HBM3", 84_978_434_048),
    "h200": Described("cuda", "NVIDIA H200", 151_397_597_184),
    "v5e": Described("tpu", "TPU v5 lite", 16 * 2**30, "v5e:2x4"),
    "v6e": Described("tpu", "TPU v6 lite", 32 * 2**30, "v6e:2x4"),
}
_BANDWIDTH = {"h100": 3_352_320_000_000, "h200": 4_800_000_000_000}
# Hopper's properties in the form of XLA's own descriptions of GPUs (stream_executor's
# GpuTargetConfigProto). The placeholders are the properties in which the products differ.
_HOPPER = """
gpu_device_info {{
  threads_per_block_limit: 1024  threads_per_warp: 32  threads_per_core_limit: 2048
  shared_memory_per_block: 49152  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472  core_count: 132  fpus_per_core: 128
  block_dim_limit_x: 2147483647  block_dim_limit_y: 65535  block_dim_limit_z: 65535
  thread_dim_limit_x: 1024  thread_dim_limit_y: 1024  thread_dim_limit_z: 64
  registers_per_core_limit: 65536  registers_per_block_limit: 65536
  memory_bandwidth: {bandwidth}  device_memory_size: {memory}  l2_cache_size: 52428800
  clock_rate_ghz: 1.98  device_address_bits: 64  pcie_bandwidth: 34359738368  ecc_enabled: true
  cuda_compute_capability {{ major: 9 feature_extension: ACCELERATED_FEATURES }}
  device_vendor: "NVIDIA Corporation"  name: "{kind}"
  platform_version: "Compute Capability 9.0a"
  model_str: "sm_9.0a with {memory}B RAM, 132 cores"
  driver_version: "13.0.0"  runtime_version: "13.0.0"  compile_time_toolkit_version: "13.0.0"
  dnn_version: "9.12.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 12 }}
device_description_str: "{kind}"
"""


def missing(platform: str) -> str:
    """Returns a message if the compiler of a platform is not installed, and otherwise ``""``."""
    if find_spec(NEEDS[platform]):
        return ""
    return f"compiling for {platform} without a device needs pip install 'jaxatr[aot]'"


@cache
def devices(name: str) -> list[Any]:
    """Returns eight devices of a kind of :data:`DEVICES`, on one host.

    Raises:
      ValueError: the compiler's package is not installed.
    """
    described = DEVICES[name]
    if message := missing(described.platform):
        raise ValueError(message)
    if described.platform == "tpu":
        # Otherwise libtpu queries the metadata server and tries to lock a local TPU.
        for variable, value in (
            ("TPU_SKIP_MDS_QUERY", "1"),
            ("TPU_ACCELERATOR_TYPE", "v5litepod-4"),
            ("TPU_WORKER_ID", "0"),
            ("TPU_WORKER_HOSTNAMES", "localhost"),
            ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"),
        ):
            os.environ.setdefault(variable, value)
        return list(topologies.get_topology_desc(described.topology, platform="tpu").devices)
    fields = described._asdict() | {"bandwidth": _BANDWIDTH[name]}
    topology = topologies.get_topology_desc(
        platform="cuda", topology="1x1x8", target_config=_HOPPER.format(**fields)
    )
    return list(topology.devices)


def compile_for(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Compiles a function for one described device.

    Args:
      name: a key of :data:`DEVICES`.
      function: a function that ``jax.jit`` accepts.
      *arguments: trees of arrays or of ``jax.ShapeDtypeStruct``.
    """
    sharding = jax.sharding.SingleDeviceSharding(devices(name)[0])

    def placed(leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    traced = jax.jit(function).trace(*jax.tree.map(placed, arguments))
    return traced.lower(lowering_platforms=(DEVICES[name].platform,)).compile()
