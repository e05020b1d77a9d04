"""Compiles for accelerators that are not here, by their description, and reads what came out.

XLA's CUDA plugin compiles for a described GPU as far as ptxas and SASS, libtpu for any TPU; neither
needs a device. Install ``jaxatr[aot]`` for both. This is what the tests in ``tests/aot`` and the
table of ``compiled.py`` share.
"""

import dataclasses
import itertools
import math
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.experimental import topologies

from jaxatr.kernels.activations import ACTIVATIONS
from jaxatr.kernels.contrib.fusion import (
    Activation,
    BatchNorm,
    Bias,
    Convolution,
    FusionPlan,
    FusionProblem,
    Residual,
)
from jaxatr.kernels.contrib.fusion.operations import Operation
from jaxatr.kernels.contrib.fusion.solvers import SOLVERS
from jaxatr.kernels.pallas import Device, kernel
from jaxatr.kernels.pallas.epilogue import Epilogue
from jaxatr.kernels.pallas.rows import Rows

NEEDS = {"cuda": "jax_cuda13_plugin", "tpu": "libtpu"}  # the packages that compile for a platform
SHARED = 227 * 1024  # bytes of shared memory that one block may have
HALF = 228 * 1024 // 2 - 1024  # and each of two on a multiprocessor


class Described(NamedTuple):
    """An accelerator that need not be here.

    Attributes:
      platform: ``"cuda"`` or ``"tpu"``.
      kind: jax's name of it.
      memory: bytes of a device.
      topology: of eight TPUs; empty for a GPU.
    """

    platform: str
    kind: str
    memory: int
    topology: str = ""


DEVICES = {
    "h100": Described("cuda", "NVIDIA H100 80GB HBM3", 84_978_434_048),
    "h200": Described("cuda", "NVIDIA H200", 151_397_597_184),
    "v5e": Described("tpu", "TPU v5 lite", 16 * 2**30, "v5e:2x4"),
    "v6e": Described("tpu", "TPU v6 lite", 32 * 2**30, "v6e:2x4"),
}
_BANDWIDTH = {"h100": 3_352_320_000_000, "h200": 4_800_000_000_000}
# Hopper's facts in the form of XLA's own descriptions of GPUs (stream_executor's
# GpuTargetConfigProto); what is left out are those of one product.
_HOPPER = """
gpu_device_info {{
  threads_per_block_limit: 1024  threads_per_warp: 32  threads_per_core_limit: 2048
  shared_memory_per_block: 49152  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472  core_count: 132  fpus_per_core: 128
  block_dim_limit_x: 2147483647  block_dim_limit_y: 65535  block_dim_limit_z: 65535
  thread_dim_limit_x: 1024  thread_dim_limit_y: 1024  thread_dim_limit_z: 64
  registers_per_core_limit: 65536  registers_per_block_limit: 65536
  memory_bandwidth: {bandwidth}  device_memory_size: {memory}  l2_cache_size: 52428800
  clock_rate_ghz: 1.98  device_address_bits: 64  pcie_bandwidth: 34359738368  ecc_enabled: true
  cuda_compute_capability {{ major: 9 feature_extension: ACCELERATED_FEATURES }}
  device_vendor: "NVIDIA Corporation"  name: "{kind}"
  platform_version: "Compute Capability 9.0a"
  model_str: "sm_9.0a with {memory}B RAM, 132 cores"
  driver_version: "13.0.0"  runtime_version: "13.0.0"  compile_time_toolkit_version: "13.0.0"
  dnn_version: "9.12.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 12 }}
device_description_str: "{kind}"
"""


def missing(platform: str) -> str:
    """Names the extra that compiling for a platform needs; ``""`` where it is installed."""
    if find_spec(NEEDS[platform]):
        return ""
    return f"compiling for {platform} without a device needs pip install 'jaxatr[aot]'"


@cache
def devices(name: str) -> list[Any]:
    """Returns eight devices of a kind of :data:`DEVICES`, on one host.

    Raises:
      ValueError: the packages that compile for them are not installed.
    """
    described = DEVICES[name]
    if message := missing(described.platform):
        raise ValueError(message)
    if described.platform == "tpu":
        # Or libtpu looks for the machine that it is on, and locks the TPU that is not there.
        for variable, value in (
            ("TPU_SKIP_MDS_QUERY", "1"),
            ("TPU_ACCELERATOR_TYPE", "v5litepod-4"),
            ("TPU_WORKER_ID", "0"),
            ("TPU_WORKER_HOSTNAMES", "localhost"),
            ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"),
        ):
            os.environ.setdefault(variable, value)
        return list(topologies.get_topology_desc(described.topology, platform="tpu").devices)
    fields = described._asdict() | {"bandwidth": _BANDWIDTH[name]}
    found = topologies.get_topology_desc(
        platform="cuda", topology="1x1x8", target_config=_HOPPER.format(**fields)
    )
    return list(found.devices)


def compile_for(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Compiles a function for one described device.

    Args:
      name: of :data:`DEVICES`.
      function: what ``jit`` takes.
      *arguments: trees of arrays or of what has a shape and a type.
    """
    sharding = jax.sharding.SingleDeviceSharding(devices(name)[0])

    def placed(leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    traced = jax.jit(function).trace(*jax.tree.map(placed, arguments))
    return traced.lower(lowering_platforms=(DEVICES[name].platform,)).compile()


# ---------------------------------------------------------------- what is compiled


class Case(NamedTuple):
    """A kernel with the shapes that it is compiled for.

    Attributes:
      name: of the case.
      function: takes arrays of ``arguments``.
      arguments: shapes and types.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[jax.ShapeDtypeStruct, ...]


ONE, THREE = ((1, 1), ((0, 0), (0, 0))), ((3, 3), ((1, 1), (1, 1)))
UNEVEN, FIVE = ((2, 3), ((1, 0), (0, 2))), ((5, 5), ((2, 2), (2, 2)))
SEVEN, WIDE, HIGH = (
    ((7, 7), ((3, 3), (3, 3))),
    ((1, 9), ((0, 0), (4, 4))),
    ((9, 1), ((4, 4), (0, 0))),
)
FULL = Epilogue(scale=True, shift=True, residual=True, activation="relu")
BIAS = Epilogue(shift=True, activation="relu")


def convolution_case(
    device: Device,
    size: tuple[int, int, int],
    channels: tuple[int, int],
    geometry: Any,
    epilogue: Epilogue,
    dtype: str,
) -> Case:
    """Describes a convolution's kernel; ``size`` is images, rows and columns of the result.

    Raises:
      ValueError: the kernel does not apply.
    """
    taps, padding = geometry
    rows, module = Rows(*size, taps, padding), kernel(device, "convolution")
    if not module.applies(rows, *channels, dtype):
        raise ValueError(f"{device}: {rows}, {channels} channels, {dtype}: does not apply")
    edges = (size[n + 1] + taps[n] - 1 - sum(padding[n]) for n in (0, 1))
    struct = jax.ShapeDtypeStruct
    arguments = {
        "x": struct((size[0], *edges, channels[0]), dtype),
        "w": struct((*taps, *channels), dtype),
    }
    for name in ("scale", "shift"):
        if getattr(epilogue, name):
            arguments[name] = struct(channels[1:], "float32")
    if epilogue.residual:
        arguments["residual"] = struct((*size, channels[1]), dtype)
    names = list(arguments)

    def run(*arrays: Any) -> Any:
        return module.convolution(
            rows=rows, epilogue=epilogue, **dict(zip(names, arrays, strict=True))
        )

    parts = [name for name in ("scale", "shift", "residual") if getattr(epilogue, name)]
    text = f"{'x'.join(map(str, taps))} {'x'.join(map(str, size))} {channels[0]}>{channels[1]}"
    return Case(
        f"conv {text} {dtype} {'+'.join([*parts, epilogue.activation])}",
        run,
        tuple(arguments.values()),
    )


def lstm_case(device: Device, batch: int, hidden: int, dtype: str, saves: bool) -> Case:
    """Describes a step of an LSTM, with or without what its derivative needs."""
    struct, module = jax.ShapeDtypeStruct, kernel(device, "lstm")
    if batch % module.rows(dtype) or not module.applies(hidden, dtype):
        raise ValueError(f"{device}: batch {batch}, {hidden} units, {dtype}: does not apply")
    state, part = struct((batch, hidden), dtype), struct((batch, 4 * hidden), "float32")
    arguments = state, struct(state.shape, "float32"), struct((hidden, 4 * hidden), dtype), part
    name = f"lstm {batch}x{hidden} {dtype}{' with gates' if saves else ''}"
    return Case(name, partial(module.step, saves=saves), arguments)


def layer_case(batch: int, hidden: int, steps: int) -> Case:
    """Describes all steps of Hopper's LSTM for its results alone."""
    one = lstm_case("hopper", batch, hidden, "bfloat16", saves=False)
    h, c, r, part = one.arguments
    parts = jax.ShapeDtypeStruct((steps, *part.shape), part.dtype)
    layer = kernel("hopper", "lstm").layer
    return Case(f"lstm {batch}x{hidden} bfloat16, a layer", layer, (h, c, r, parts))


def hopper_cases() -> Iterator[Case]:
    """Yields Hopper's kernels: every epilogue and type, and the edges of ``applies``."""
    case = partial(convolution_case, "hopper")
    usual = (8, 28, 28)
    for dtype, geometry, epilogue, width in itertools.product(
        ("bfloat16", "float16"), (ONE, THREE), (Epilogue(), BIAS, FULL), (64, 256)
    ):
        yield case(usual, (width, width), geometry, epilogue, dtype)
    for activation in sorted(set(ACTIVATIONS) - {"relu"}):
        epilogue = dataclasses.replace(FULL, activation=activation)
        yield case(usual, (256, 256), THREE, epilogue, "bfloat16")
    for size, channels, geometry in (
        ((1, 1, 1), (64, 64), ONE),  # the smallest
        ((3, 13, 7), (192, 320), UNEVEN),  # no multiple of anything but 64
        ((4, 28, 28), (64, 192), FIVE),
        ((4, 12, 12), (64, 64), SEVEN),
        ((32, 7, 7), (4096, 2048), THREE),  # many products
        ((256, 224, 224), (64, 64), THREE),  # 104,864 tiles of rows
        ((256, 56, 56), (64, 256), ONE),
    ):
        yield case(size, channels, geometry, FULL, "bfloat16")
    for batch, hidden in ((64, 64), (64, 1024), (128, 2048), (64, 8192)):
        yield lstm_case("hopper", batch, hidden, "bfloat16", saves=True)
    yield lstm_case("hopper", 192, 320, "float16", saves=True)
    yield lstm_case("hopper", 64, 1024, "bfloat16", saves=False)
    yield layer_case(64, 1024, 50)


def tpu_cases() -> Iterator[Case]:
    """Yields the TPU's kernels: every epilogue and type, and the largest that ``applies`` takes."""
    case, module = partial(convolution_case, "tpu"), kernel("tpu", "convolution")
    for dtype, geometry, epilogue in itertools.product(
        ("bfloat16", "float32"), (ONE, THREE, UNEVEN), (Epilogue(), BIAS, FULL)
    ):
        yield case((8, 14, 14), (128, 128), geometry, epilogue, dtype)
    for activation in sorted(set(ACTIVATIONS) - {"relu"}):
        epilogue = dataclasses.replace(FULL, activation=activation)
        yield case((8, 14, 14), (128, 256), THREE, epilogue, "bfloat16")
    for dtype, geometry, width in itertools.product(
        ("bfloat16", "float32"), (ONE, THREE, FIVE, SEVEN, WIDE, HIGH), (128, 512, 2048, 8192)
    ):
        sides = [
            side
            for side in range(1, 129)
            if module.applies(Rows(2, side, side, *geometry), width, 128, dtype)
        ]
        if sides:
            yield case((2, sides[-1], sides[-1]), (width, 128), geometry, FULL, dtype)
    lstm = kernel("tpu", "lstm")
    for dtype in ("bfloat16", "float32"):
        widest = max(h for h in range(128, 16384, 128) if lstm.applies(h, dtype))
        for batch, hidden in itertools.product((16, 512, 1008), (128, 2048, 4096, widest)):
            if lstm.applies(hidden, dtype):
                yield lstm_case("tpu", batch, hidden, dtype, saves=True)
        yield lstm_case("tpu", 512, widest, dtype, saves=False)


TAILS: dict[str, list[Operation]] = {
    "CBA": [Bias(), Activation()],
    "CBRA": [Bias(), Residual(), Activation()],
    "CBNA": [Bias(), BatchNorm(), Activation()],
    "CBNRA": [Bias(), BatchNorm(), Residual(), Activation()],
}
SHAPES = {  # images, side, channels, taps
    "3x3 28x28 256": (32, 28, 256, 3),
    "3x3 56x56 64": (32, 56, 64, 3),
    "3x3 7x7 512": (32, 7, 512, 3),
    "1x1 28x28 256": (32, 28, 256, 1),
}


def plan_case(combination: str, shape: str, dtype: str, solver: str) -> Case:
    """Describes a fusion plan, ``solver`` of it one of ``fusion.solvers.SOLVERS``."""
    images, side, width, taps = SHAPES[shape]
    edge = (taps // 2, taps // 2)
    plan = FusionPlan([Convolution(padding=(edge, edge)), *TAILS[combination]])
    problem = FusionProblem((images, side, side, width), (taps, taps, width, width), dtype)
    names = plan.arguments(problem)
    arguments = [
        jax.ShapeDtypeStruct(s, dtype if n in ("x", "w", "residual") else "float32")
        for n, s in names.items()
    ]

    def run(*arrays: Any) -> Any:
        return SOLVERS[solver].run(plan.operations, dict(zip(names, arrays, strict=True)))

    return Case(f"{combination} {shape} {dtype} {solver}", run, tuple(arguments))


# ---------------------------------------------------------------- what came out


class Report(NamedTuple):
    """Resources of a Mosaic GPU kernel, as ptxas and its launch report them.

    Attributes:
      registers: of a thread.
      spills: bytes that a thread stores and loads for want of registers.
      shared: bytes of shared memory of a block.
      grid: blocks along each axis.
    """

    registers: int
    spills: int
    shared: int
    grid: tuple[int, int, int]


@contextmanager
def _dumping(folder: str) -> Iterator[None]:
    wanted = {"MOSAIC_GPU_DUMP_TO": folder, "MOSAIC_GPU_DUMP_HOST_LLVM": "1"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def compile_kernel(name: str, case: Case) -> tuple[Any, Report]:
    """Compiles one Mosaic GPU kernel; returns the program and ptxas' report.

    A process compiles a kernel once: the second time there is nothing to report.

    Raises:
      RuntimeError: there is not one report.
    """
    with tempfile.TemporaryDirectory() as folder, _dumping(folder):
        program = compile_for(name, case.function, *case.arguments)
        reports = [path.read_text() for path in Path(folder).glob("*.ptxas")]
        launches = [path.read_text() for path in Path(folder).glob("*.ll")]
    if len(reports) != 1 or len(launches) != 1:
        raise RuntimeError(f"{case.name}: got {len(reports)} reports of ptxas, wanted one")
    registers = int(_found(r"Used (\d+) registers", reports[0])[0])
    spills = sum(map(int, _found(r"(\d+) bytes spill", reports[0])))
    call = _found(r"call void @mosaic_gpu_launch_kernel\((.*?)\)", launches[0])[0]
    numbers = [int(n) for n in re.findall(r"i32 (\d+)", call)]
    return program, Report(registers, spills, numbers[-1], tuple(numbers[:3]))  # type: ignore


def _found(pattern: str, text: str) -> list[str]:
    found = re.findall(pattern, text)
    if not found:
        raise RuntimeError(f"{pattern!r} is not in what was dumped: {text[:200]}")
    return found


def custom_calls(program: Any) -> Counter[str]:
    """Counts the custom calls of a compiled program by their targets."""
    return Counter(re.findall(r'custom_call_target="([^"]+)"', program.as_text()))


_COLLECTIVES = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"


def collectives(program: Any) -> Counter[str]:
    """Counts the collectives of a compiled program; a started one and its end are one."""
    return Counter(re.findall(rf" ({_COLLECTIVES})(?:-start)?\(", program.as_text()))


def launches(program: Any) -> int:
    """Returns how many operations each round of a program's only loop launches."""
    text = program.as_text()
    (body,) = set(re.findall(r"body=%([\w.\-]+)", text))
    part = text[text.index(f"%{body} (") :]
    part = part[: part.index("\n}")]
    kinds = "fusion|custom-call|copy|dot|dynamic-slice|dynamic-update-slice|call|while"
    return len(re.findall(rf" (?:{kinds})\(", part))


_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "f64": 8}
_MOVES = ("fusion", "custom-call", "copy", "transpose", "convert", "pad", "slice", "concatenate")


def traffic(program: Any) -> int:
    """Returns the bytes of the operands and results of the operations that a program launches."""
    text = program.as_text()
    entry = text[text.index("ENTRY") :]
    entry = entry[: entry.index("\n}")]
    sizes: dict[str, int] = {}
    total = 0
    for line in entry.splitlines()[1:]:
        matched = re.match(r"\s*(?:ROOT )?%([\w.\-]+) = (.*?) ([\w\-]+)\((.*)$", line)
        if matched is None:
            continue
        name, kind, operation, rest = matched.groups()
        sizes[name] = sum(
            _BYTES[dtype] * math.prod(map(int, filter(None, shape.split(","))))
            for dtype, shape in re.findall(r"\b(\w+)\[([\d,]*)\]", kind)
            if dtype in _BYTES
        )
        if operation in _MOVES:
            operands = re.findall(r"%([\w.\-]+)", rest.partition("), ")[0])
            total += sizes[name] + sum(sizes.get(operand, 0) for operand in operands)
    return total


def memory(program: Any) -> int:
    """Returns the bytes that a program needs on each device."""
    found = program.memory_analysis()
    return (
        found.argument_size_in_bytes
        + found.output_size_in_bytes
        + found.temp_size_in_bytes
        - found.alias_size_in_bytes
    )
