"""Kernels for accelerators, put together from parts: loading tiles, the product, and epilogues.

``hopper`` is for NVIDIA's Hopper through Mosaic GPU, ``tpu`` for TPU through Pallas TPU. What is
the same on both stands here.
"""

import importlib
from typing import Any, Literal, TypeAlias

from jaxatr.kernels.device import Device as Target

Device: TypeAlias = Literal["hopper", "tpu"]

_HOPPER = ("H100", "H200", "H800", "H20")


def runs_on(device: Device, here: Target) -> bool:
    """Says whether the kernels for a device run on this one."""
    if device == "tpu":
        return here.platform == "tpu"
    return here.platform == "gpu" and any(name in here.kind for name in _HOPPER)


def kernel(device: Device, operation: Literal["convolution", "lstm"]) -> Any:
    """Returns the module of a kernel, imported when it is first asked for.

    Mosaic takes most of a second to import, which nobody without its device should wait for.
    """
    return importlib.import_module(f"jaxatr.kernels.pallas.{device}.{operation}")
