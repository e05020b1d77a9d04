"""Resources, calls and memory traffic of compiled programs."""

import math
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from described import compile_for
from kernel_cases import Case

SHARED = 227 * 1024  # the most bytes of shared memory of a block
HALF = 228 * 1024 // 2 - 1024  # the most of each of two blocks on a multiprocessor


class Report(NamedTuple):
    """Resources of a Mosaic GPU kernel, read from the output of ptxas and from its launch.

    Attributes:
      registers: registers of a thread.
      spills: bytes of spill stores and loads of a thread.
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
    """Compiles one Mosaic GPU kernel and returns the program with its report.

    A process compiles a kernel only once, so a second call for the same kernel has no report.

    Raises:
      RuntimeError: there is not exactly one report.
    """
    with tempfile.TemporaryDirectory() as folder, _dumping(folder):
        program = compile_for(name, case.function, *case.arguments)
        reports = [path.read_text() for path in Path(folder).glob("*.ptxas")]
        launches = [path.read_text() for path in Path(folder).glob("*.ll")]
    if len(reports) != 1 or len(launches) != 1:
        raise RuntimeError(f"{case.name}: got {len(reports)} reports of ptxas, wanted one")
    registers = int(_matches(r"Used (\d+) registers", reports[0])[0])
    spills = sum(map(int, _matches(r"(\d+) bytes spill", reports[0])))
    # grid, cluster and block, three numbers each, then the shared memory; void before jax 0.11
    call = _matches(r"call (?:void|i32) @mosaic_gpu_launch_kernel\((.*?)\)", launches[0])[0]
    numbers = [int(n) for n in re.findall(r"i32 (\d+)", call)]
    return program, Report(registers, spills, numbers[9], tuple(numbers[:3]))  # type: ignore


def _matches(pattern: str, text: str) -> list[str]:
    matches = re.findall(pattern, text)
    if not matches:
        raise RuntimeError(f"no match of {pattern!r} in the compiler's dump: {text[:200]}")
    return matches


def custom_calls(program: Any) -> Counter[str]:
    """Counts the custom calls of a compiled program by their targets."""
    return Counter(re.findall(r'custom_call_target="([^"]+)"', program.as_text()))


_COLLECTIVES = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"


def collectives(program: Any) -> Counter[str]:
    """Counts the collectives of a compiled program; an asynchronous pair counts once."""
    return Counter(re.findall(rf" ({_COLLECTIVES})(?:-start)?\(", program.as_text()))


def launches(program: Any) -> int:
    """Returns how many operations each iteration of a program's only loop launches."""
    text = program.as_text()
    (body,) = set(re.findall(r"body=%([\w.\-]+)", text))
    part = text[text.index(f"%{body} (") :]
    part = part[: part.index("\n}")]
    kinds = "fusion|custom-call|copy|dot|dynamic-slice|dynamic-update-slice|call|while"
    return len(re.findall(rf" (?:{kinds})\(", part))


_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "f64": 8}
_MOVES = ("fusion", "custom-call", "copy", "transpose", "convert", "pad", "slice", "concatenate")


def traffic(program: Any) -> int:
    """Returns the total bytes of operands and results of the operations that a program launches."""
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
    sizes = program.memory_analysis()
    return (
        sizes.argument_size_in_bytes
        + sizes.output_size_in_bytes
        + sizes.temp_size_in_bytes
        - sizes.alias_size_in_bytes
    )
