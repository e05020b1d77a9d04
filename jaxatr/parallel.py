"""Data parallelism: the axis name, replication, sharding of batches, and multi-process runs.

Every per-device function of the package runs under ``pmap`` with the axis name :data:`AXIS`. Models
and losses that reduce over the global batch (batch normalisation, batch statistics) use that name.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxatr.jax_internals import multihost_utils
from jaxatr.typing import Batch, PyTree

AXIS = "data"

Device: TypeAlias = Any  # a jax.Device, which type checkers do not accept as a type

_ASYNCHRONOUS = "jax_cpu_enable_async_dispatch"
_VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")


def initialize_from_environment() -> None:
    """Joins the processes of a multi-process run, if the environment describes one.

    Reads ``JAX_COORDINATOR_ADDRESS`` (``host:port`` of process 0), ``JAX_NUM_PROCESSES`` and
    ``JAX_PROCESS_ID`` (from 0); without them it does nothing. Must be called before jax touches a
    device. On CPU the processes communicate through gloo.

    Raises:
      ValueError: only some of the variables are set, or one of the numbers is invalid.
    """
    given = {name: os.environ[name] for name in _VARIABLES if os.environ.get(name)}
    if not given:
        return
    if missing := [name for name in _VARIABLES if name not in given]:
        raise ValueError(
            f"several processes: got {', '.join(given)} in the environment, "
            f"wanted {', '.join(missing)} as well"
        )
    address, count, index = (given[name] for name in _VARIABLES)
    if not (count.isdigit() and index.isdigit() and int(index) < int(count)):
        raise ValueError(
            f"several processes: got JAX_PROCESS_ID={index!r} of JAX_NUM_PROCESSES={count!r}, "
            "wanted integers, the first smaller than the second"
        )
    jax.distributed.initialize(address, int(count), int(index))


def compute_inline() -> None:
    """Makes XLA:CPU run programs in the thread that calls them. Call it before jax finds devices.

    A training on a CPU has no cores to spare for the host's work in the meantime. Large arrays are
    then in the heap of the main thread (:func:`jaxatr.memory.keep`), and the temporary arrays of a
    step are freed at its end. Other devices compute as before.
    """
    jax.config.update(_ASYNCHRONOUS, False)


def computes_inline() -> bool:
    """Returns whether programs run on a CPU, in the thread that calls them."""
    return jax.default_backend() == "cpu" and not jax.config.values[_ASYNCHRONOUS]


def psum(tree: PyTree) -> PyTree:
    """Sums a tree over all devices of :data:`AXIS`.

    A single device returns the tree itself, because XLA:CPU would copy it.
    """
    return tree if jax.lax.axis_size(AXIS) == 1 else jax.lax.psum(tree, AXIS)


def following(rows: Any) -> Any:
    """Returns the next row of the global batch for each of a device's rows ``[b, ...]``.

    The last row of the batch is followed by the first. The result does not depend on the number of
    devices.
    """
    count = jax.lax.axis_size(AXIS)
    first = rows[:1]
    if count > 1:
        first = jax.lax.ppermute(first, AXIS, [(i, (i - 1) % count) for i in range(count)])
    return jnp.concatenate([rows[1:], first])


def gather_json(value: Any) -> list[Any]:
    """Returns the JSON ``value`` of every process, in order; all processes must call it."""
    if jax.process_count() == 1:
        return [value]
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    sizes = multihost_utils.process_allgather(np.asarray(len(text)))
    padded = np.zeros(int(np.max(sizes)), np.uint8)
    padded[: len(text)] = text
    rows = multihost_utils.process_allgather(padded)
    return [json.loads(bytes(row[:size])) for row, size in zip(rows, sizes, strict=True)]


def wait_for_all(name: str) -> None:
    """Waits until every process of a run has reached the barrier of this name."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def replicate(tree: PyTree, devices: Sequence[Device] | None = None) -> PyTree:
    """Returns ``tree`` with a leading axis that holds one copy per local device."""
    devices = jax.local_devices() if devices is None else devices
    sharding = _sharding(devices)

    def copy(leaf: Any) -> jax.Array:
        if jnp.issubdtype(getattr(leaf, "dtype", np.float32), jax.dtypes.prng_key):
            data = copy(jax.random.key_data(leaf))
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
        leaf = np.asarray(leaf)
        return jax.device_put(np.broadcast_to(leaf, (len(devices), *leaf.shape)), sharding)

    return jax.tree.map(copy, tree)


def replicate_in_background(
    compute: Callable[[], PyTree], devices: Sequence[Device] | None = None
) -> Future[PyTree]:
    """Starts a thread that computes a tree and replicates it.

    XLA compiles without Python's lock, so that this thread can go on tracing meanwhile.
    """
    thread = ThreadPoolExecutor(1)
    started = thread.submit(lambda: replicate(compute(), devices))
    thread.shutdown(wait=False)
    return started


def replicated_shapes(tree: PyTree, devices: Sequence[Device] | None = None) -> PyTree:
    """Returns the shapes of ``replicate(tree)``, for lowering; ``tree`` may be of shapes itself."""
    devices = jax.local_devices() if devices is None else devices
    sharding = _sharding(devices)

    def shape(leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((len(devices), *leaf.shape), leaf.dtype, sharding=sharding)

    return jax.tree.map(shape, tree)


def _sharding(devices: Sequence[Device]) -> NamedSharding:
    return NamedSharding(Mesh(np.asarray(devices), (AXIS,)), PartitionSpec(AXIS))


def unreplicate(tree: PyTree) -> PyTree:
    """Returns the first local device's copy of a replicated tree, still on that device."""
    return _without_axis(jax.tree.map(lambda leaf: leaf.addressable_shards[0].data, tree))


@jax.jit
def _without_axis(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[0], tree)


def shard(batch: Batch, num_devices: int) -> dict[str, np.ndarray]:
    """Returns ``batch`` with each ``[b, ...]`` leaf as ``[num_devices, b / num_devices, ...]``.

    Raises:
      ValueError: the batch is not divisible by the number of devices.
    """
    size = len(next(iter(batch.values())))
    if size % num_devices:
        raise ValueError(
            f"a batch of {size} is not divisible by {num_devices} devices: "
            "set config.train.batch_size to a multiple of the devices of all processes"
        )
    return {
        name: np.reshape(leaf, (num_devices, size // num_devices, *np.shape(leaf)[1:]))
        for name, leaf in batch.items()
    }


def arrived(batch: PyTree, devices: Sequence[Device]) -> PyTree:
    """Returns a sharded batch, on its devices if they compute inline.

    Otherwise XLA would wait for the arrays in a thread of its own, and run the program there.
    """
    if not computes_inline():
        return batch
    return jax.block_until_ready(jax.device_put(batch, _sharding(devices)))


def map_batches(
    fn: Callable[[PyTree, Batch], PyTree],
    variables: PyTree,
    batches: Iterable[Batch],
    devices: Sequence[Device] | None = None,
) -> Iterator[tuple[Batch, PyTree]]:
    """Applies ``fn`` to each batch on all local devices.

    A batch that is smaller than an earlier one, or not divisible by the number of devices, is
    padded with copies of its last example, so that a short last batch is not compiled separately.
    The outputs of the padding are dropped.

    Args:
      fn: a pure function ``(variables, batch) -> pytree of [b, ...]`` for one device. The same
        function object is compiled once, however often this is called.
      variables: pytree, the same for every device.
      batches: mappings of ``[b, ...]`` arrays.
      devices: the devices to use, by default all local ones.

    Yields:
      ``(batch, outputs)``: the original batch, and the outputs as NumPy ``[b, ...]``.
    """
    devices = jax.local_devices() if devices is None else list(devices)
    mapped = jax.pmap(fn, axis_name=AXIS, devices=devices)
    variables = replicate(variables, devices)
    running: tuple[Batch, PyTree] | None = None
    largest = 0
    for batch in batches:
        largest = max(largest, len(next(iter(batch.values()))))
        full = -(-largest // len(devices)) * len(devices)
        outputs = mapped(variables, arrived(shard(_fill(batch, full), len(devices)), devices))
        if running is not None:  # fetched only now, so that the devices do not wait for the host
            yield running[0], _gather(*running)
        running = batch, outputs
    if running is not None:
        yield running[0], _gather(*running)


def _fill(batch: Batch, size: int) -> dict[str, np.ndarray]:
    def fill(leaf: np.ndarray) -> np.ndarray:
        missing = size - len(leaf)
        return np.pad(leaf, [(0, missing)] + [(0, 0)] * (leaf.ndim - 1), mode="edge")

    return {name: fill(np.asarray(leaf)) for name, leaf in batch.items()}


def _gather(batch: Batch, outputs: PyTree) -> PyTree:
    size = len(next(iter(batch.values())))
    return jax.tree.map(
        lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[2:])[:size], jax.device_get(outputs)
    )
