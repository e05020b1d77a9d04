"""The stages of prove.py that run PyTorch on the same layers and networks, in its fast settings.

Images are channels_last, cuDNN benchmarks its algorithms, and float32 products use TF32. On a GPU,
runs are captured as CUDA graphs where possible.
"""

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import kernel_stages
import network_stages
import recurrent_stages
from rows import Rows, Unit

MISSING = {"skipped": "PyTorch is not installed: pip install 'jaxatr[peers]'"}


def units(stage: str, rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    """Returns the units of a stage."""
    del rows
    if find_spec("torch") is None:
        return iter([("all", lambda: dict(MISSING))])
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    return {"kernels_torch": kernels, "networks_torch": networks}[stage](options)


def timed(run: Callable[[], Any], runs: int, graph: bool) -> float:
    """Returns the milliseconds of a run, measured by events on a GPU.

    Args:
      run: the function to time.
      runs: number of runs.
      graph: whether to capture the run as a CUDA graph and time its replay.
    """
    import torch

    for _ in range(3):
        run()
    if not torch.cuda.is_available():
        start = time.perf_counter()
        for _ in range(runs):
            run()
        return 1e3 * (time.perf_counter() - start) / runs
    torch.cuda.synchronize()
    if graph:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            run()
        run = captured.replay
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(runs):
        run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / runs


def _place() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def kernels(options: argparse.Namespace) -> Iterator[Unit]:
    runs = 2 if options.rehearse else kernel_stages.RUNS
    for name, shape in (kernel_stages.TINY if options.rehearse else kernel_stages.LAYERS).items():
        for direction in ("plain", "data", "weight"):
            yield f"conv {name} {direction}", partial(convolution, direction, shape, runs)
    lstms = recurrent_stages.TINY_LSTM if options.rehearse else recurrent_stages.LSTMS
    for name, sizes in lstms.items():
        yield f"lstm {name} forward", partial(recurrent, "lstm", "forward", *sizes, runs)
    if not options.rehearse:
        for cell, (name, sizes), mode in itertools.product(
            recurrent_stages.CELLS, recurrent_stages.PERSISTENT.items(), ("forward", "gradient")
        ):
            yield f"{cell} {name} {mode}", partial(recurrent, cell, mode, *sizes, runs)


def convolution(direction: str, shape: tuple[int, ...], runs: int) -> dict[str, Any]:
    """Times a convolution (``"plain"``) or one of its gradients."""
    import torch

    images, side, channels, features, taps = shape
    place: Any = {"device": _place(), "dtype": torch.bfloat16}
    x = torch.randn(images, channels, side, side, **place).to(memory_format=torch.channels_last)
    module: Any = torch.nn.Conv2d(channels, features, taps, padding=taps // 2, bias=False)
    module = module.to(**place, memory_format=torch.channels_last)
    wanted = (direction == "data", direction == "weight", False)

    def run() -> Any:
        if direction == "plain":
            return module(x)
        edges, ones = [taps // 2] * 2, [1, 1]
        settings = (None, ones, edges, ones, False, [0, 0], 1, wanted)
        return torch.ops.aten.convolution_backward(y, x, module.weight, *settings)

    with torch.no_grad():
        y = module(x)
        ms = timed(run, runs, graph=True)
    gflop = 2e-9 * images * side * side * channels * features * taps * taps
    return {"device_ms": round(ms, 5), "TFLOP/s": round(gflop / ms, 2)}


def recurrent(
    cell: str, mode: str, batch: int, hidden: int, steps: int, runs: int
) -> dict[str, Any]:
    """Times an LSTM or GRU (``"forward"``), or its gradient with respect to the weights."""
    import torch

    place: Any = {"device": _place(), "dtype": torch.bfloat16}
    made = torch.nn.LSTM if cell == "lstm" else torch.nn.GRU
    module = made(hidden, hidden, batch_first=True, **place)
    module.flatten_parameters()  # or cuDNN copies the weights at each call
    x = torch.randn(batch, steps, hidden, **place)

    def gradient() -> None:
        module.zero_grad()
        module(x)[0].sum().backward()

    runs = max(2, runs // 4)
    if mode == "gradient":
        return {"device_ms": round(timed(gradient, runs, graph=False), 5)}
    with torch.no_grad():
        return {"device_ms": round(timed(lambda: module(x), runs, graph=True), 5)}


def networks(options: argparse.Namespace) -> Iterator[Unit]:
    runs = 2 if options.rehearse else 30
    settings = ("eager",) if options.rehearse else ("reduce-overhead", "graph", "compile", "eager")
    for name, *case in network_stages.cases(options):
        for setting in settings:
            if not (setting == "graph" and case[3] == "training"):
                yield f"{name} {setting}", partial(network, *case, setting, runs)


def network(
    depth: int, size: int, dtype: str, mode: str, batch: int, setting: str, runs: int
) -> dict[str, Any]:
    """Times a ResNet with CBC's heads; the setting ``reduce-overhead`` compiles to CUDA graphs."""
    import torch
    import torch_resnet

    place = _place()
    if place == "cuda":  # the peak is that of the process, which has timed other networks before
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    loss_of: Any = torch_resnet.loss_of
    model: Any = torch_resnet.build(depth).to(place, memory_format=torch.channels_last)
    images = torch.randn(batch, 3, size, size, device=place)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(6, (batch,), device=place)
    compiled = {"compile": {}, "reduce-overhead": {"mode": "reduce-overhead"}}.get(setting)
    cast = torch.autocast(place, torch.bfloat16, enabled=dtype == "bfloat16")
    if mode == "training":
        model.train()
        optimizer = torch.optim.SGD(
            model.parameters(), 1e-2, 0.9, weight_decay=5e-4, nesterov=True, fused=True
        )
        loss = loss_of if compiled is None else torch.compile(loss_of, **compiled)

        def run() -> None:
            optimizer.zero_grad(set_to_none=True)
            with cast:
                value = loss(model, images, labels)
            value.backward()
            optimizer.step()

        ms = timed(run, runs, graph=False)
    else:
        model.eval()
        answer = model if compiled is None else torch.compile(model, **compiled)
        with torch.no_grad(), cast:
            ms = timed(lambda: answer(images), runs, graph=setting == "graph")
    peak = torch.cuda.max_memory_allocated() if place == "cuda" else 0
    rate = {"ms": round(ms, 4), "images_per_s": round(1e3 * batch / ms, 1)}
    return {"batch": batch, **rate, "peak_mb": round(1e-6 * peak, 1)}
