"""The stage that times whole networks, in training and inference."""

import argparse
import itertools
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from rows import Rows, Unit


def cases(options: argparse.Namespace) -> Iterator[tuple[str, int, int, str, str, int]]:
    """Yields name, depth, pixels, type, mode and batch of each network, also for PyTorch."""
    depths, sizes = ((18,), (32,)) if options.rehearse else ((18, 50), (64, 224))
    types = ("bfloat16",) if options.rehearse else ("bfloat16", "float32")
    for mode, size, depth, dtype in itertools.product(
        ("training", "inference"), sizes, depths, types
    ):
        batch = 4 if options.rehearse else 256 if size == 64 else 128
        shown = "TF32" if dtype == "float32" else dtype
        yield f"ResNet-{depth} {size} {shown} {mode}", depth, size, dtype, mode, batch


def networks(rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    runs = 2 if options.rehearse else 30
    for name, *case in cases(options):
        yield name, partial(network, *case, runs)
        if name.endswith("inference"):  # as predict does, and with the variables in the program
            for constants in (False, True):
                form = "constants" if constants else "compiled"
                yield f"{name} {form}", partial(network, *case, runs, constants)


def small_networks(rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    """Yields the networks in which the launches of many small layers take the time."""
    for name, measure in networks(rows, options):
        if f" {32 if options.rehearse else 64} " in name:
            yield name, measure


def network(
    depth: int,
    size: int,
    dtype: str,
    mode: str,
    batch: int,
    runs: int,
    constants: bool | None = None,
) -> dict[str, Any]:
    """Times queued steps of a network with CBC's heads.

    Inference is that of the training loop, by pmap, unless ``constants`` says whether the variables
    become part of the program of :class:`jaxatr.kernels.compiled.Compiled`.
    """
    import jax
    import step_jax

    from jaxatr import models, parallel
    from jaxatr.kernels.compiled import Compiled
    from jaxatr.training.state import create_state

    (device,) = first = jax.devices()[:1]
    earlier = _peak(device)
    task: Any = step_jax.Benchmark(size)
    backbone = {18: models.ResNet18, 50: models.ResNet50}[depth](dtype=dtype)
    task.module = models.OpenSetClassifier(backbone, step_jax.CLASSES)
    state = parallel.replicate(create_state(task, jax.random.key(0)), first)
    draw = np.random.default_rng(0)
    arrays = {
        "image": draw.standard_normal((batch, size, size, 3), np.float32),
        "label": draw.integers(0, step_jax.CLASSES, batch, np.int32),
    }
    arrays = jax.device_put(parallel.shard(arrays, 1))
    start = time.perf_counter()
    if mode == "training":
        step, stop = step_jax.make_step(task.phases[0], first), np.zeros(1, np.int32)

        def run() -> Any:
            nonlocal state
            state, sums = step(state, arrays, stop)
            return sums
    elif constants is not None:
        variables = jax.tree.map(
            lambda leaf: leaf[0], {"params": state.params, **state.model_state}
        )
        infer = Compiled(task.infer, variables, constants=constants)
        run = partial(infer, {"image": arrays["image"][0]})
    else:
        variables = {"params": state.params, **state.model_state}
        infer = jax.pmap(task.infer, axis_name=parallel.AXIS, devices=first)
        run = partial(infer, variables, arrays)
    jax.block_until_ready(run())
    compiled = time.perf_counter() - start
    jax.block_until_ready(run())
    start = time.perf_counter()
    for _ in range(runs):
        result = run()
    jax.block_until_ready(result)
    seconds = (time.perf_counter() - start) / runs
    row = {
        "batch": batch,
        "ms": round(1e3 * seconds, 4),
        "images_per_s": round(batch / seconds, 1),
        "first_step_s": round(compiled, 1),
    }
    # The peak is that of the process, which a network that needs less than an earlier one leaves.
    peak = _peak(device)
    return row | ({"peak_mb": round(1e-6 * peak, 1)} if peak > earlier else {})


def _peak(device: Any) -> int:
    """Returns the most bytes that this process has used on a device; 0 if it does not tell."""
    return (device.memory_stats() or {}).get("peak_bytes_in_use", 0)
