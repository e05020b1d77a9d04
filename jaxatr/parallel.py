"""Data parallelism in one place: the axis name, and how trees and batches meet the local devices.

Every per-device function of the package runs under ``pmap`` with the axis name :data:`AXIS`. Models
and losses that reduce over the global batch (batch normalisation, batch statistics) use that name.
"""

from collections.abc import Sequence

import jax
import numpy as np

from jaxatr.typing import Batch, PyTree

AXIS = "data"


def replicate(tree: PyTree, devices: Sequence[jax.Device] | None = None) -> PyTree:
    """Returns ``tree`` with a leading axis that holds one copy per local device."""
    devices = jax.local_devices() if devices is None else devices
    return jax.device_put_replicated(tree, list(devices))


def unreplicate(tree: PyTree) -> PyTree:
    """Returns the first device's copy of a replicated tree, still on that device."""
    return jax.tree.map(lambda leaf: leaf.addressable_shards[0].data[0], tree)


def shard(batch: Batch, num_devices: int) -> dict[str, np.ndarray]:
    """Returns ``batch`` with each ``[b, ...]`` leaf reshaped to ``[num_devices, b / num_devices, ...]``.

    Raises:
      ValueError: the batch does not divide by the devices.
    """
    size = len(next(iter(batch.values())))
    if size % num_devices:
        raise ValueError(
            f"a batch of {size} does not divide by {num_devices} devices: "
            f"set config.train.batch_size to a multiple of {num_devices}"
        )
    return {
        name: np.reshape(leaf, (num_devices, size // num_devices, *np.shape(leaf)[1:]))
        for name, leaf in batch.items()
    }
