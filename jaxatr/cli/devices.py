"""The flag ``--device``, which chooses the devices of a command before jax starts."""

import os
import re
import sys

from absl import flags

PLATFORMS = ("cpu", "cuda", "tpu")
INLINE = ("train", "search")
"""Commands that compute in their main thread on a CPU (:func:`jaxatr.parallel.compute_inline`)."""

WITHOUT = ("check", "prepare", "report", "monitor")
"""The commands that compute nothing on a device."""

_NAMES = {"cuda": "gpu"}
"""jax's names of the devices of a platform, where they are not the platform's."""

_NUMBERS = re.compile(r"\d+(,\d+)*")
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def define() -> None:
    """Defines ``--device``."""
    flags.DEFINE_string(
        "device",
        None,
        "What to compute on: cpu, cuda, tpu, or the numbers of some GPUs, such as 0,1. Default: "
        "what jax finds, or JAX_PLATFORMS.",
    )


def use(device: str) -> None:
    """Lets jax use only the given devices, in this process and those that it starts.

    Args:
      device: one of :data:`PLATFORMS`, or numbers of GPUs with commas.

    Raises:
      ValueError: it is neither, or there are no such devices.
    """
    platform, numbers = device, None
    if _NUMBERS.fullmatch(device):
        platform, numbers = "cuda", device.split(",")
        os.environ[_VISIBLE] = ",".join(_visible(device, numbers))
    elif device not in PLATFORMS:
        listed = ", ".join(PLATFORMS)
        raise ValueError(
            f"--device: got {device!r}, wanted {listed}, or numbers of GPUs such as 0,1"
        )
    platforms = platform if platform == "cpu" else f"{platform},cpu"
    os.environ["JAX_PLATFORMS"] = platforms
    if (jax := sys.modules.get("jax")) is not None:  # which has read the variable already
        jax.config.update("jax_platforms", platforms)
    if not os.environ.get("JAX_NUM_PROCESSES"):  # several processes join before jax starts
        _check(device, platform, numbers)


def _visible(device: str, numbers: list[str]) -> list[str]:
    """Returns the names of GPUs by their numbers among those that are visible."""
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"--device={device}: a number is given twice")
    names = os.environ.get(_VISIBLE, "").split(",")
    if names == [""]:
        return numbers
    if beyond := next((one for one in numbers if int(one) >= len(names)), None):
        raise ValueError(
            f"--device={device}: there is no GPU {beyond}: {_VISIBLE} lets {len(names)} be seen"
        )
    return [names[int(one)] for one in numbers]


def _check(device: str, platform: str, numbers: list[str] | None) -> None:
    """Starts jax on the chosen devices.

    Raises:
      ValueError: there are none, or fewer than are named.
    """
    import jax

    extra = "" if platform == "cpu" else f": pip install 'jaxatr[{platform}]'"
    why = f"--device={device}: jax finds no such device, or its plug-in is not installed{extra}"
    try:
        found = jax.devices()
    except (RuntimeError, AssertionError) as error:
        raise ValueError(why) from error
    if found[0].platform != _NAMES.get(platform, platform):  # jax fell back to the CPU
        raise ValueError(why)
    if numbers is not None and len(found) < len(numbers):
        raise ValueError(
            f"--device={device}: got {len(numbers)} numbers of GPUs, and jax finds {len(found)}"
        )
