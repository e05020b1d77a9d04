"""How the stages compare a result with the right one, and time a run."""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def milliseconds(run: Callable[..., Any], arguments: tuple[Any, ...], runs: int) -> dict[str, Any]:
    """Returns the time of a run, by the device's own clock and as the mean of queued runs."""
    import jax

    jax.block_until_ready(run(*arguments))
    start = time.perf_counter()
    for _ in range(runs):
        result = run(*arguments)
    jax.block_until_ready(result)
    times: dict[str, Any] = {"queued_ms": round(1e3 * (time.perf_counter() - start) / runs, 5)}
    if jax.default_backend() == "gpu":
        from jax.experimental.mosaic.gpu import profiler

        try:
            measured: Any = profiler.measure(run, iterations=runs)(*arguments)[1]
        except RuntimeError as reason:  # CUPTI is not available, or the runs' launches differ
            return times | {"no_device_ms": str(reason)[:100]}
        if measured:
            times["device_ms"] = round(statistics.median(measured), 5)
    return times


def target(options: argparse.Namespace) -> str | None:
    """Returns the target whose kernels run on this device; a rehearsal interprets Hopper's."""
    import jax

    from jaxatr.kernels.device import describe
    from jaxatr.kernels.pallas import runs_on

    if options.rehearse:
        return "hopper"
    here = describe(jax.devices()[0])
    return next((name for name in ("hopper", "tpu") if runs_on(name, here)), None)


def interpreter(options: argparse.Namespace) -> dict[str, Any]:
    if not options.rehearse:
        return {}
    from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks, params

    # Before jax 0.12 the interpreter does not treat references without a memory space as global.
    known = gpu_callbacks.is_gmem_memory_space
    gpu_callbacks.is_gmem_memory_space = lambda space: space is None or known(space)
    zeros: Any = {"out_of_bounds_reads": "uninitialized", "uninitialized_memory": "zero"}  # as TMA
    return {"interpret": params.InterpretGPUParams(**zeros)}


def error(result: Any, wanted: Any) -> float:
    result, wanted = np.asarray(result, np.float64), np.asarray(wanted, np.float64)
    return float(np.sqrt(np.mean((result - wanted) ** 2)) / np.abs(wanted).max())
