"""Pallas kernels for accelerators, composed of tile loading, the matrix product and epilogues.

``hopper`` has the kernels for NVIDIA Hopper (Mosaic GPU), ``tpu`` those for TPUs. The shared parts
are in this folder.
"""

import importlib
from typing import Any, Literal, TypeAlias

from jaxatr.kernels.device import Device as Target

Device: TypeAlias = Literal["hopper", "tpu"]

_HOPPER = ("H100", "H200", "H800", "H20")


def runs_on(device: Device, here: Target) -> bool:
    """Returns whether the kernels for ``device`` run on the device ``here``."""
    if device == "tpu":
        return here.platform == "tpu"
    return here.platform == "gpu" and any(name in here.kind for name in _HOPPER)


def kernel(device: Device, operation: Literal["convolution", "lstm", "recurrent", "weight"]) -> Any:
    """Imports and returns the module of a kernel.

    The import is late because Mosaic takes most of a second to import.
    """
    return importlib.import_module(f"jaxatr.kernels.pallas.{device}.{operation}")
