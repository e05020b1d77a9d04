"""The stages that check and time this package's kernels."""

import argparse
import dataclasses
import itertools
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measuring import error, interpreter, milliseconds, target
from recurrent_stages import (
    CELLS,
    LSTMS,
    PERSISTENT,
    TINY_LSTM,
    checked_lstm,
    checked_persistent,
    timed_layer,
)
from rows import Rows, Unit

HERE = Path(__file__).parent

LAYERS = {  # images, side, channels, features, taps; layers of ResNet-50 and VGG, 2 to 60 GFLOP
    "conv2 1x1": (64, 56, 64, 256, 1),
    "conv2 3x3": (64, 56, 64, 64, 3),
    "conv3 3x3": (64, 28, 128, 128, 3),
    "conv4 1x1": (64, 14, 1024, 256, 1),
    "conv4 3x3": (64, 14, 256, 256, 3),
    "conv5 1x1": (64, 7, 512, 2048, 1),
    "conv5 3x3": (64, 7, 512, 512, 3),
    "vgg 112": (64, 112, 128, 128, 3),
}
ODD = {  # sizes that are not multiples of a tile
    "7x7": (24, 7, 128, 128, 3),
    "13x13": (13, 13, 256, 384, 3),
    "5x5 taps": (8, 12, 128, 128, 5),
    "one pixel": (1, 1, 128, 128, 1),
}
DIRECTIONS = {  # direction, images, side, channels, features, taps, stride; for Hopper's kernel
    "stride 2": ("forward", 32, 29, 128, 192, 3, 2),
    "1x1 stride 2": ("forward", 40, 28, 256, 512, 1, 2),
    "data": ("data", 32, 28, 256, 128, 3, 1),
    "data stride 2": ("data", 36, 29, 64, 192, 3, 2),
    "weight": ("weight", 32, 28, 256, 128, 3, 1),
    "1x1 weight": ("weight", 9, 14, 64, 192, 1, 1),
    "1x1 data stride 2": ("data", 128, 14, 128, 256, 1, 2),
    "7x7 data stride 3": ("data", 8, 20, 64, 64, 7, 3),
    "weight stride 2": ("weight", 36, 29, 64, 192, 3, 2),
}
TINY = {"1x1": (2, 6, 64, 64, 1), "3x3": (8, 3, 64, 64, 3)}
TINY_DIRECTIONS = {"stride 2": ("forward", 8, 5, 64, 64, 3, 2)}
TOLERANCE = 8e-3  # for bfloat16: RMS error over the largest value
RUNS = 20


def operands(shape: tuple[int, ...]) -> tuple[Any, ...]:
    import jax
    import jax.numpy as jnp

    images, side, channels, features, taps = shape
    keys = jax.random.split(jax.random.key(0), 5)
    scale = (taps * taps * channels) ** -0.5
    return (
        jax.random.normal(keys[0], (images, side, side, channels), jnp.bfloat16),
        (scale * jax.random.normal(keys[1], (taps, taps, channels, features))).astype("bfloat16"),
        1 + 0.1 * jax.random.normal(keys[2], (features,)),
        jax.random.normal(keys[3], (features,)),
        jax.random.normal(keys[4], (images, side, side, features), jnp.bfloat16),
    )


def forms(taps: int, device: str | None, options: argparse.Namespace) -> dict[str, Callable]:
    """Returns the forms of a plain convolution and of ``relu(scale * conv + shift + residual)``."""
    import jax
    import jax.numpy as jnp

    from jaxatr.kernels.pallas import kernel
    from jaxatr.kernels.pallas.epilogue import Epilogue
    from jaxatr.kernels.pallas.rows import Rows as Geometry
    from jaxatr.kernels.pallas.windows import Windows

    edge = (taps // 2, taps // 2)
    padding = (edge, edge)
    given = interpreter(options)

    def lax(x: Any, w: Any, **more: Any) -> Any:
        dimensions = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), padding, dimension_numbers=dimensions, **more
        )

    def wide(x: Any, w: Any, s: Any, t: Any, r: Any) -> Any:
        y = lax(x, w).astype(jnp.float32)
        return jax.nn.relu(y * s + t + r.astype(jnp.float32)).astype(x.dtype)

    def folded(x: Any, w: Any, s: Any, t: Any, r: Any) -> Any:
        return jax.nn.relu(lax(x, (w * s).astype(w.dtype)) + t.astype(x.dtype) + r)

    def exact(x, w):
        return lax(x.astype(jnp.float32), w.astype(jnp.float32), precision="highest")

    functions: dict[str, Callable[..., Any]] = {
        "xla plain": lambda x, w, s, t, r: lax(x, w),
        "xla full": wide,
        "xla_folded full": folded,
        "exact plain": lambda x, w, s, t, r: exact(x, w),
        "exact full": lambda x, w, s, t, r: jax.nn.relu(exact(x, w) * s + t + r.astype("float32")),
    }
    if device is not None:
        module = kernel(device, "convolution")  # type: ignore[arg-type]

        def run(epilogue: Epilogue, x: Any, w: Any, *extras: Any) -> Any:
            images, height, width, _ = x.shape
            geometry: Any = Geometry(images, height, width, (taps, taps), padding)
            if device == "hopper":
                size, before = (height, width), (taps // 2, taps // 2)
                geometry = Windows(images, size, size, (taps, taps), before=before)
            return module.convolution(x, w, geometry, epilogue, *extras, **given)

        full = Epilogue(scale=True, shift=True, residual=True, activation="relu")
        functions[f"{device} plain"] = lambda x, w, s, t, r: run(Epilogue(), x, w)
        functions[f"{device} full"] = lambda *arguments: run(full, *arguments)
    return functions


def checked(form: str, shape: tuple[int, ...], runs: int, options: argparse.Namespace) -> dict:
    """Compares a kernel's convolution with float32, and repeated runs with each other."""
    import jax

    device = target(options)
    functions, arguments = forms(shape[-1], device, options), operands(shape)
    run = jax.jit(functions[f"{device} {form}"])
    first = np.asarray(run(*arguments))
    same = all((np.asarray(run(*arguments)) == first).all() for _ in range(runs - 1))
    off = error(first, jax.jit(functions[f"exact {form}"])(*arguments))
    return {"error": off, "same_bits": bool(same), "passed": bool(off < TOLERANCE and same)}


def drawn(direction: Any, shape: tuple[int, ...], stride: int = 1) -> tuple[Any, tuple[Any, ...]]:
    """Returns the problem of a direction in bfloat16, and random arguments."""
    import jax.numpy as jnp

    from jaxatr.kernels.ops.convolution.operation import OPERATION
    from jaxatr.kernels.ops.convolution.problem import ConvProblem

    images, side, channels, features, taps = shape
    edge, sizes = (taps // 2, taps // 2), (taps, taps, channels, features)
    image, strides = (images, side, side, channels), (stride, stride)
    problem = ConvProblem(direction, image, sizes, strides, (edge, edge), (1, 1), 1, "bfloat16")
    arguments = OPERATION.arguments(problem, np.random.default_rng(0))
    return problem, tuple(map(jnp.asarray, arguments))


def checked_direction(
    direction: Any,
    images: int,
    side: int,
    channels: int,
    features: int,
    taps: int,
    stride: int,
    runs: int,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Compares a strided convolution or a gradient by Hopper's kernels with float32."""
    import jax

    from jaxatr.kernels.ops.convolution.solvers import SOLVERS, hopper

    problem, (a, b) = drawn(direction, (images, side, channels, features, taps), stride)
    wide = dataclasses.replace(problem, dtype="float32")
    with jax.default_matmul_precision("highest"):
        exact = jax.jit(SOLVERS["xla"].build(wide, ()))
        wanted = np.asarray(exact(a.astype("float32"), b.astype("float32")))
    given, worst, same = interpreter(options), 0.0, True
    for config in SOLVERS["hopper"].configs(problem)[: 1 if options.rehearse else None]:
        run = jax.jit(partial(hopper.run, problem, config, **given))
        first = np.asarray(run(a, b))
        worst = max(worst, error(first, wanted))
        same = same and all((np.asarray(run(a, b)) == first).all() for _ in range(runs - 1))
    return {"error": worst, "same_bits": same, "passed": worst < TOLERANCE and same}


def smoke(rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    if target(options) is None:
        yield "all", lambda: {"skipped": "this package has no kernels for this device"}
        return
    runs = 1 if options.rehearse else 3
    side, width = (3, 64) if options.rehearse else (14, 128)
    for taps in (1, 3):
        shape = (8, side, width, width, taps)
        yield f"conv {taps}x{taps}", partial(checked, "full", shape, runs, options)
    if target(options) == "hopper":
        names = TINY_DIRECTIONS if options.rehearse else DIRECTIONS
        for name in list(names)[-3:]:
            yield f"conv {name}", partial(checked_direction, *names[name], runs, options)
    batch, hidden = (64, 64) if options.rehearse else (64, 128)
    yield "lstm", lambda: checked_lstm(batch, hidden, 2, runs, options)
    if target(options) == "hopper":
        for cell in CELLS:
            measure = partial(checked_persistent, cell, batch, hidden, 2, runs, options)
            yield f"persistent {cell}", measure


def unless_smoke_failed(rows: Rows, kind: str, measure: Callable[[], dict]) -> dict[str, Any]:
    """Measures a unit, unless the smoke stage failed for its kind of kernel."""
    smoked = rows.of("smoke")
    if "all" in smoked or not smoked:
        return {"skipped": "no kernel was tested"}
    if any(name.startswith(kind) and not row.get("passed") for name, row in smoked.items()):
        return {"skipped": "the kernel failed the smoke stage"}
    return measure()


def right(rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    runs = 2 if options.rehearse else RUNS
    layers = TINY if options.rehearse else LAYERS | ODD
    for (name, shape), form in itertools.product(layers.items(), ("plain", "full")):
        measure = partial(checked, form, shape, runs, options)
        yield f"conv {name} {form}", partial(unless_smoke_failed, rows, "conv", measure)
    if target(options) == "hopper":
        for name, sizes in (TINY_DIRECTIONS if options.rehearse else DIRECTIONS).items():
            measure = partial(checked_direction, *sizes, runs, options)
            yield f"conv {name}", partial(unless_smoke_failed, rows, "conv", measure)
    for name, sizes in (TINY_LSTM if options.rehearse else LSTMS).items():
        measure = partial(checked_lstm, *sizes, runs, options)
        yield f"lstm {name}", partial(unless_smoke_failed, rows, "lstm", measure)
    if target(options) == "hopper" and not options.rehearse:
        for cell, (name, sizes) in itertools.product(CELLS, PERSISTENT.items()):
            measure = partial(checked_persistent, cell, *sizes, runs, options)
            guarded = partial(unless_smoke_failed, rows, "persistent", measure)
            yield f"persistent {cell} {name}", guarded


def sanitize(rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    for tool in ("memcheck", "racecheck", "synccheck"):
        yield tool, partial(unless_smoke_failed, rows, "", partial(sanitized, tool, options))


def sanitized(tool: str, options: argparse.Namespace) -> dict[str, Any]:
    """Runs the smoke stage again under compute-sanitizer, with a separate record."""
    program = shutil.which("compute-sanitizer")
    if program is None:
        return {"skipped": "compute-sanitizer is not on the path"}
    folder = options.out / f"sanitize_{tool}"
    shutil.rmtree(folder, ignore_errors=True)
    command = [program, "--tool", tool, "--error-exitcode", "9", sys.executable]
    command += [str(HERE / "prove.py"), "--stage", "smoke", "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    tail = " ".join(done.stdout.split())[-300:]
    return {"status": done.returncode, "tail": tail, "passed": done.returncode == 0}


def kernels(rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    runs = 2 if options.rehearse else RUNS
    device = target(options)
    for name, shape in (TINY if options.rehearse else LAYERS).items():
        images, side, channels, features, taps = shape
        gflop = 2e-9 * images * side * side * channels * features * taps * taps
        for form, function in forms(taps, device, options).items():
            if form.startswith("exact"):
                continue

            measure = partial(timed_form, function, shape, runs, gflop)
            ours = device is not None and form.startswith(device)
            guarded = partial(unless_smoke_failed, rows, "conv", measure) if ours else measure
            yield f"conv {name} {form}", guarded
        for direction, solver in itertools.product(
            ("data", "weight"), ["xla"] + ["hopper"] * (device == "hopper" and not options.rehearse)
        ):
            measure = partial(timed_gradient, direction, solver, shape, runs, gflop)
            guarded = partial(unless_smoke_failed, rows, "conv", measure)
            yield f"conv {name} {direction} {solver}", measure if solver == "xla" else guarded
    names = ["gemm", "scan"] + ([device] if device and not options.rehearse else [])
    for (name, sizes), form in itertools.product(
        (TINY_LSTM if options.rehearse else LSTMS).items(), names
    ):
        for mode in ("forward",) if form == "hopper" else ("forward", "gradient"):
            measure = partial(timed_layer, form, "lstm", mode, *sizes, runs)
            guarded = partial(unless_smoke_failed, rows, "lstm", measure)
            yield f"lstm {name} {form} {mode}", guarded if form == device else measure
    if device == "hopper" and not options.rehearse:
        for cell, (name, sizes), form, mode in itertools.product(
            CELLS, PERSISTENT.items(), ("gemm", "persistent"), ("forward", "gradient")
        ):
            measure = partial(timed_layer, form, cell, mode, *sizes, runs)
            guarded = partial(unless_smoke_failed, rows, "persistent", measure)
            yield f"{cell} {name} {form} {mode}", measure if form == "gemm" else guarded


def rated(times: dict[str, Any], gflop: float) -> dict[str, Any]:
    return times | {"TFLOP/s": round(gflop / times.get("device_ms", times["queued_ms"]), 2)}


def timed_form(
    function: Callable[..., Any], shape: tuple[int, ...], runs: int, gflop: float
) -> dict[str, Any]:
    import jax

    return rated(milliseconds(jax.jit(function), operands(shape), runs), gflop)


def timed_gradient(
    direction: str, solver: str, shape: tuple[int, ...], runs: int, gflop: float
) -> dict[str, Any]:
    import jax

    from jaxatr.kernels.ops.convolution.solvers import SOLVERS

    problem, arguments = drawn(direction, shape)
    config = next(iter(SOLVERS[solver].configs(problem)), ())
    return rated(
        milliseconds(jax.jit(SOLVERS[solver].build(problem, config)), arguments, runs), gflop
    )
