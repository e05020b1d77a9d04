"""The stages of prove.py that run this package."""

import argparse
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rows import Rows, Unit

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.append(str(HERE.parent / "benchmarks"))

LAYERS = {  # images, side, channels, features, taps: of ResNet-50 and VGG, 2 to 60 GFLOP
    "conv2 1x1": (64, 56, 64, 256, 1),
    "conv2 3x3": (64, 56, 64, 64, 3),
    "conv3 3x3": (64, 28, 128, 128, 3),
    "conv4 1x1": (64, 14, 1024, 256, 1),
    "conv4 3x3": (64, 14, 256, 256, 3),
    "conv5 1x1": (64, 7, 512, 2048, 1),
    "conv5 3x3": (64, 7, 512, 512, 3),
    "vgg 112": (64, 112, 128, 128, 3),
}
ODD = {  # no multiple of a tile
    "7x7": (3, 7, 128, 128, 3),
    "13x13": (5, 13, 256, 384, 3),
    "5x5 taps": (4, 12, 128, 128, 5),
    "one pixel": (1, 1, 128, 128, 1),
}
LSTMS = {"64x1024": (64, 1024, 50), "64x2048": (64, 2048, 25), "128x512": (128, 512, 100)}
TINY = {"1x1": (2, 6, 64, 64, 1), "3x3": (2, 6, 64, 64, 3)}
TINY_LSTM = {"64x64": (64, 64, 2)}
TOLERANCE = 8e-3  # of bfloat16: root mean square of the error over the largest value
RUNS = 20


def units(stage: str, rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    """Returns the units of a stage.

    Raises:
      ValueError: the record is of another device.
    """
    if stage not in ("sanitize", "disk", "resume", "long"):  # whose processes want all memory
        check_device(rows)
    return _STAGES[stage](rows, options)


def check_device(rows: Rows) -> None:
    import jax

    device = jax.devices()[0]
    here = {"kind": device.device_kind, "platform": device.platform, "jax": jax.__version__}
    recorded = next((r for r in rows.rows if r["unit"] == "device"), None)
    if recorded is None:
        rows.add("about", "device", **here)
    elif {name: recorded[name] for name in here} != here:
        raise ValueError(f"--out: it has a record of {recorded}, this is {here}: give another one")


# ------------------------------------------------------------------------------- clocks


def milliseconds(run: Callable[..., Any], arguments: tuple[Any, ...], runs: int) -> dict[str, Any]:
    """Returns the time of a run by the device's own clock and by that of many queued runs."""
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
            found: Any = profiler.measure(run, iterations=runs)(*arguments)[1]
        except RuntimeError as reason:  # CUPTI cannot be had, or its runs differ in their launches
            return times | {"no_device_ms": str(reason)[:100]}
        if found:
            times["device_ms"] = round(statistics.median(found), 5)
    return times


def ceilings(rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    import ceilings as limits

    if options.rehearse:
        limits.SIZES = {"cpu": (64, 2**16)}
    for dtype in ("bfloat16", "float32"):
        yield dtype, partial(limits.measured, dtype)


# ------------------------------------------------------------------------------ kernels


def target(options: argparse.Namespace) -> str | None:
    """Returns whose kernels run here; in a rehearsal Hopper's are interpreted."""
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

    # Of a reference without a memory space: global, which the interpreter knows since jax 0.12.
    known = gpu_callbacks.is_gmem_memory_space
    gpu_callbacks.is_gmem_memory_space = lambda space: space is None or known(space)
    return {"interpret": params.InterpretGPUParams()}


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
    """Returns the ways to compute ``relu(scale * conv + shift + residual)``, or a product."""
    import jax
    import jax.numpy as jnp

    from jaxatr.kernels.pallas import kernel
    from jaxatr.kernels.pallas.epilogue import Epilogue
    from jaxatr.kernels.pallas.rows import Rows as Geometry

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

    found: dict[str, Callable[..., Any]] = {
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
            geometry = Geometry(images, height, width, (taps, taps), padding)
            return module.convolution(x, w, geometry, epilogue, *extras, **given)

        full = Epilogue(scale=True, shift=True, residual=True, activation="relu")
        found[f"{device} plain"] = lambda x, w, s, t, r: run(Epilogue(), x, w)
        found[f"{device} full"] = lambda *arguments: run(full, *arguments)
    return found


def error(result: Any, wanted: Any) -> float:
    result, wanted = np.asarray(result, np.float64), np.asarray(wanted, np.float64)
    return float(np.sqrt(np.mean((result - wanted) ** 2)) / np.abs(wanted).max())


def checked(form: str, shape: tuple[int, ...], runs: int, options: argparse.Namespace) -> dict:
    """Compares a form of a convolution with float32, and with itself."""
    import jax

    device = target(options)
    found, arguments = forms(shape[-1], device, options), operands(shape)
    run = jax.jit(found[f"{device} {form}"])
    first = np.asarray(run(*arguments))
    same = all((np.asarray(run(*arguments)) == first).all() for _ in range(runs - 1))
    off = error(first, jax.jit(found[f"exact {form}"])(*arguments))
    return {"error": off, "same_bits": bool(same), "passed": bool(off < TOLERANCE and same)}


def checked_lstm(batch: int, hidden: int, steps: int, runs: int, options) -> dict:
    """Compares a layer by the kernel with the plain loop: its results, and its gradients."""
    import jax
    import jax.numpy as jnp

    from jaxatr.kernels import recurrent
    from jaxatr.kernels.ops.recurrent import Problem, pallas, scan

    device: Any = target(options)
    given = interpreter(options)
    problem = Problem("lstm", steps, batch, hidden, hidden, False, False, "bfloat16")
    ((weights,),) = recurrent.init(jax.random.key(0), "lstm", hidden, hidden, dtype="bfloat16")
    x = jax.random.normal(jax.random.key(1), (steps, batch, hidden), jnp.bfloat16)
    zeros = jnp.zeros((batch, hidden))

    def results(run, weights):
        return run(problem, weights, x, (zeros, zeros), None, False)

    def gradient(run, weights):
        return jax.grad(lambda w: results(run, w)[0].sum())(weights)

    ours = partial(pallas.run, device, **given)
    errors, same = [], True
    for what in (results, gradient):
        run = jax.jit(partial(what, ours))
        first, wanted = jax.tree.leaves(run(weights)), jax.jit(partial(what, scan.run))(weights)
        errors += [error(a, b) for a, b in zip(first, jax.tree.leaves(wanted), strict=True)]
        for _ in range(runs - 1):
            again = zip(first, jax.tree.leaves(run(weights)), strict=True)
            same = same and all(bool((a == b).all()) for a, b in again)
    return {"error": max(errors), "same_bits": same, "passed": max(errors) < 5e-2 and same}


def smoke(rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    if target(options) is None:
        yield "all", lambda: {"skipped": "no kernel of this package is for this device"}
        return
    runs = 1 if options.rehearse else 3
    side, width = (6, 64) if options.rehearse else (14, 128)
    for taps in (1, 3):
        shape = (2, side, width, width, taps)
        yield f"conv {taps}x{taps}", partial(checked, "full", shape, runs, options)
    batch, hidden = (64, 64) if options.rehearse else (64, 128)
    yield "lstm", lambda: checked_lstm(batch, hidden, 2, runs, options)


def unless_smoke_failed(rows: Rows, kind: str, measure: Callable[[], dict]) -> dict[str, Any]:
    """Measures, unless a smoke of the kind failed: what follows would only fail for longer."""
    found = rows.of("smoke")
    if "all" in found or not found:
        return {"skipped": "no kernel was tried"}
    if any(name.startswith(kind) and not row.get("passed") for name, row in found.items()):
        return {"skipped": "its smoke failed"}
    return measure()


def right(rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    runs = 2 if options.rehearse else RUNS
    layers = TINY if options.rehearse else LAYERS | ODD
    for (name, shape), form in itertools.product(layers.items(), ("plain", "full")):
        measure = partial(checked, form, shape, runs, options)
        yield f"conv {name} {form}", partial(unless_smoke_failed, rows, "conv", measure)
    for name, sizes in (TINY_LSTM if options.rehearse else LSTMS).items():
        measure = partial(checked_lstm, *sizes, runs, options)
        yield f"lstm {name}", partial(unless_smoke_failed, rows, "lstm", measure)


def sanitize(rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    for tool in ("memcheck", "racecheck", "synccheck"):
        yield tool, partial(unless_smoke_failed, rows, "", partial(sanitized, tool, options))


def sanitized(tool: str, options: argparse.Namespace) -> dict[str, Any]:
    """Runs the smoke stage once more, under compute-sanitizer, into a record of its own."""
    program = shutil.which("compute-sanitizer")
    if program is None:
        return {"skipped": "there is no compute-sanitizer on the path"}
    folder = options.out / f"sanitize_{tool}"
    shutil.rmtree(folder, ignore_errors=True)
    command = [program, "--tool", tool, "--error-exitcode", "9", sys.executable]
    command += [str(HERE / "prove.py"), "--stage", "smoke", "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    tail = " ".join(done.stdout.split())[-300:]
    return {"status": done.returncode, "tail": tail, "passed": done.returncode == 0}


def kernels(rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    import jax

    runs = 2 if options.rehearse else RUNS
    device = target(options)
    for name, shape in (TINY if options.rehearse else LAYERS).items():
        images, side, channels, features, taps = shape
        gflop = 2e-9 * images * side * side * channels * features * taps * taps
        for form, function in forms(taps, device, options).items():
            if form.startswith("exact"):
                continue

            def measure(function=function, shape=shape, gflop=gflop) -> dict[str, Any]:
                times = milliseconds(jax.jit(function), operands(shape), runs)
                ms = times.get("device_ms", times["queued_ms"])
                return {**times, "TFLOP/s": round(gflop / ms, 2)}

            ours = device is not None and form.startswith(device)
            guarded = partial(unless_smoke_failed, rows, "conv", measure) if ours else measure
            yield f"conv {name} {form}", guarded
    names = ["gemm", "scan"] + ([device] if device and not options.rehearse else [])
    for (name, sizes), form in itertools.product(
        (TINY_LSTM if options.rehearse else LSTMS).items(), names
    ):
        for mode in ("forward", "gradient"):
            measure = partial(timed_lstm, form, mode, *sizes, runs)
            guarded = partial(unless_smoke_failed, rows, "lstm", measure)
            yield f"lstm {name} {form} {mode}", guarded if form == device else measure


def timed_lstm(form: str, mode: str, batch: int, hidden: int, steps: int, runs: int) -> dict:
    import jax
    import jax.numpy as jnp

    from jaxatr.kernels import lstm, recurrent

    params = recurrent.init(jax.random.key(0), "lstm", hidden, hidden, dtype="bfloat16")
    x = jax.random.normal(jax.random.key(1), (batch, steps, hidden), jnp.bfloat16)
    forward = lambda params, x: lstm(params, x, algorithm=form)[0]  # noqa: E731
    gradient = jax.grad(lambda params, x: forward(params, x).astype(jnp.float32).sum())
    run = jax.jit(forward if mode == "forward" else gradient)
    return milliseconds(run, (params, x), max(2, runs // 4))


# ----------------------------------------------------------------------------- networks


def cases(options: argparse.Namespace) -> Iterator[tuple[str, int, int, str, str, int]]:
    """Yields name, depth, pixels, type, mode and batch of the networks, here and in PyTorch."""
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


def network(depth: int, size: int, dtype: str, mode: str, batch: int, runs: int) -> dict[str, Any]:
    """Times the steps of a network with CBC's heads, queued behind each other."""
    import jax
    import step_jax

    from jaxatr import models, parallel
    from jaxatr.training.state import create_state

    task: Any = step_jax.Benchmark(size)
    backbone = {18: models.ResNet18, 50: models.ResNet50}[depth](dtype=dtype)
    task.module = models.OpenSetClassifier(backbone, step_jax.CLASSES)
    first = jax.devices()[:1]
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
    memory = (first[0].memory_stats() or {}).get("peak_bytes_in_use", 0)
    return {
        "batch": batch,
        "ms": round(1e3 * seconds, 4),
        "images_per_s": round(batch / seconds, 1),
        "first_step_s": round(compiled, 1),
        "peak_mb": round(1e-6 * memory, 1),
    }


# ------------------------------------------------------------------------- whole trainings


def jaxatr(command: str, *flags: str, log: Path, seconds: float | None = None) -> int:
    """Runs a command of the package; after ``seconds`` it is asked to save and to end."""
    arguments = [sys.executable, "-m", f"jaxatr.{command}", *flags]
    with open(log, "a", encoding="utf-8") as file:
        process = subprocess.Popen(arguments, cwd=ROOT, stdout=file, stderr=file)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            return process.wait()


def folder_of_images(path: Path, classes: int, each: int, side: int) -> Path:
    """Writes class folders of PNG files, if they are not there."""
    from PIL import Image

    if (path / "whole").is_file():
        return path
    draw = np.random.default_rng(0)
    for split, name in itertools.product(("train", "test"), range(classes)):
        folder = path / split / f"class{name}"
        folder.mkdir(parents=True, exist_ok=True)
        for index in range(each if split == "train" else max(2, each // 10)):
            pixels = draw.integers(0, 64, (side, side, 3)) + 20 * name
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{index}.png")
    (path / "whole").touch()
    return path


def disk(rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    yield "cbc:folder", partial(from_disk, options)


def from_disk(options: argparse.Namespace) -> dict[str, Any]:
    """Trains from image files; returns the images per second of its records but the first."""
    classes, each, side = (4, 12, 32) if options.rehearse else (8, 1000, 64)
    source = folder_of_images(options.out / "images", classes, each, side)
    workdir = options.out / "disk"
    shutil.rmtree(workdir, ignore_errors=True)
    fields = {
        "data.source": source,
        "data.size": side,
        "open_set.split": f"first-{classes // 2}",
        "train.batch_size": 8 if options.rehearse else 256,
        "train.steps": 6 if options.rehearse else 200,
        "train.log_every": 2 if options.rehearse else 10,
        "model.width": 8 if options.rehearse else 64,
        "train.evaluate_every": 1000.0,
    }
    if not options.rehearse:
        fields["model.dtype"] = "bfloat16"
    flags = [f"--config.{name}={value}" for name, value in fields.items()]
    status = jaxatr(
        "train", "--config=cbc:folder", f"--workdir={workdir}", *flags, log=options.out / "log.txt"
    )
    if status:
        raise RuntimeError(f"jaxatr train ended with {status}; see log.txt")
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    rates = [line["images_per_second"] for line in lines if "images_per_second" in line]
    return {"batch": fields["train.batch_size"], "images_per_s": statistics.median(rates[1:])}


def find(rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    import dataclasses

    import kernel_problems
    from jax import devices

    from jaxatr import kernels as package
    from jaxatr.kernels import database
    from jaxatr.kernels.device import describe

    dtype = "float32" if options.rehearse else "bfloat16"
    lists = [kernel_problems.deepbench(dtype)]
    lists += [kernel_problems.resnet(s, b, dtype) for s in (32, 64, 128, 224) for b in (8, 32)]
    problems = [problem for part in lists for _, problem in part]
    if options.rehearse:
        problems = sorted(problems, key=kernel_problems.flops)[:1]
    seen = set()
    for problem, direction in itertools.product(problems, ("forward", "data", "weight")):
        one = dataclasses.replace(problem, direction=direction)
        if one.key in seen:
            continue
        seen.add(one.key)

        def measure(one=one) -> dict[str, Any]:
            best, *others = package.find(one, budget_seconds=2 if options.rehearse else 10)
            known = {p.algorithm: p.milliseconds for p in (*others[::-1], best)}
            row = {"chosen": best.algorithm, "config": dict(best.config), "ms": best.milliseconds}
            return row | {"xla_ms": known.get("xla")}

        yield one.key, measure

    def shipped() -> dict[str, Any]:
        file = database.user_file(describe(devices()[0]))
        return {"database": str(shutil.copy(file, options.out / file.name))}

    yield "the database to ship", shipped


def resume(rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    yield "SIGKILL", partial(resumed, options)


def resumed(options: argparse.Namespace) -> dict[str, Any]:
    """Trains twice, one of them killed on its way; both must end with the same bits."""
    fields = {"train.steps": 12 if options.rehearse else 200, "train.checkpoint_every": 3}
    fields["train.log_every"] = 2
    flags = [f"--config.{name}={value}" for name, value in fields.items()]
    folders = [options.out / "resume" / name for name in ("whole", "killed")]
    shutil.rmtree(options.out / "resume", ignore_errors=True)
    common = ["--config=cbc:smoke", *flags]
    log = options.out / "log.txt"
    status = jaxatr("train", *common, f"--workdir={folders[0]}", log=log)
    if status:
        raise RuntimeError(f"jaxatr train ended with {status}; see log.txt")
    command = [sys.executable, "-m", "jaxatr.train", *common, f"--workdir={folders[1]}"]
    with open(log, "a", encoding="utf-8") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file)
        while process.poll() is None and not saved(folders[1]):
            time.sleep(0.05)
        process.kill()
        killed = process.wait() == -signal.SIGKILL
    at = max(saved(folders[1]), default=0)
    if status := jaxatr("train", *common, f"--workdir={folders[1]}", log=log):
        raise RuntimeError(f"jaxatr train ended with {status} the second time; see log.txt")
    same = digests(folders[0]) == digests(folders[1])
    return {"killed_at": at, "killed": killed, "same_bits": same, "passed": bool(killed and same)}


def saved(workdir: Path) -> list[int]:
    from jaxatr import training

    return list(training.saved_steps(workdir)) if workdir.is_dir() else []


def digests(workdir: Path) -> str:
    """Hashes the variables of a finished run, in a process that leaves the device alone."""
    code = (
        "import sys; from jaxatr.training import load_run; "
        "from jaxatr.training.networks import digest; "
        "print(digest(load_run(sys.argv[1]).variables))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(workdir)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        cwd=ROOT,
    )
    return done.stdout.splitlines()[-1]


def long(rows: Rows, options: argparse.Namespace) -> Iterator[Unit]:
    yield "cifar10", partial(trained_long, options)


def trained_long(options: argparse.Namespace) -> dict[str, Any]:
    """Trains for the rest of the time; finished, it is evaluated. It goes on in the next call."""
    source, fields = options.cifar10, {}
    if options.rehearse:
        source = folder_of_images(options.out / "images", 4, 12, 32)
        fields = {"train.steps": 4, "open_set.split": "first-2", "model.width": 8}
        fields |= {"train.batch_size": 8}
    elif not source:
        return {"skipped": "--cifar10 names no images"}
    else:
        fields = {"model.dtype": "bfloat16"}
    workdir, log = options.out / "cifar10", options.out / "log.txt"
    flags = [f"--config.{name}={value}" for name, value in fields.items()]
    flags += [f"--config.data.source={source}", f"--workdir={workdir}"]
    seconds = max(5.0, options.seconds - 30)  # what saving and the process itself take
    if jaxatr("train", "--config=cbc:cifar10", *flags, log=log, seconds=seconds):
        return {"unfinished": True}
    if status := jaxatr("evaluate", f"--workdir={workdir}", log=log):
        raise RuntimeError(f"jaxatr evaluate ended with {status}; see log.txt")
    measured = json.loads((workdir / "evaluation.json").read_text())
    numbers = {k: v for k, v in measured.items() if isinstance(v, int | float)}
    return {"step": max(saved(workdir), default=0), **numbers}


_STAGES: dict[str, Callable[[Rows, argparse.Namespace], Iterator[Unit]]] = {
    "ceilings": ceilings,
    "smoke": smoke,
    "right": right,
    "sanitize": sanitize,
    "kernels": kernels,
    "networks": networks,
    "disk": disk,
    "find": find,
    "resume": resume,
    "long": long,
}
