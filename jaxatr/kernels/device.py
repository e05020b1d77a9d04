"""Descriptions of devices, by which choices of algorithms are recorded."""

import os
import platform as system
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax

PLATFORMS = {None: "other", "cpu": "cpu", "cuda": "gpu", "rocm": "gpu", "tpu": "tpu"}
"""jax's name of a lowering platform → the name in :class:`Device`; None stands for any other."""


class Device(NamedTuple):
    """The properties of a device that a choice depends on.

    Attributes:
      platform: ``"cpu"``, ``"gpu"``, ``"tpu"`` or ``"other"``.
      kind: the model; for a CPU also the number of cores that this process may use; ``""`` when
        lowering for a platform that this process does not have.
    """

    platform: str
    kind: str


def describe(device: Any) -> Device:
    """Returns the description of a ``jax.Device``."""
    kind = _processor() if device.platform == "cpu" else device.device_kind
    return Device(device.platform, kind)


@cache
def of_platform(platform: str) -> Device:
    """Returns the device of a platform; its kind is ``""`` unless jax runs on that platform."""
    device = jax.local_devices()[0]
    return describe(device) if device.platform == platform else Device(platform, "")


@cache
def _processor() -> str:
    """Returns the processor's name and this process's cores; jax's own kind is just "cpu"."""
    name = system.processor() or system.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            label, _, value = line.partition(":")
            if label.strip() == "model name":
                name = value.strip()
                break
    return f"{name}, {cores()} cores"


def cores() -> int:
    """Returns the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # macOS lacks it
    return len(affinity(0)) if affinity else os.cpu_count() or 1
