"""Records registers, spills, shared memory, calls and bytes of compiled kernels, without a device.

Every case of ``kernel_cases.py`` is compiled for a described device and becomes a row. Rows of
Pallas kernels have the figures that ptxas and the launch report; rows of fusion plans have XLA's
custom calls and the bytes that the operations read and write. ``--steps`` also compiles whole
training steps, which takes minutes. ``--parts`` compiles only some parts of the record; the others
stay as they are, so it needs a record of the same devices and version of jax.

Run: PYTHONPATH=. python experiments/kernels/compiled.py [--gpu h200] [--tpu v5e] [--steps]
     [--parts hopper …]
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import described
import jax
import kernel_cases
import program_reports
import steps

from experiments.records import table
from jaxatr import files

HERE = Path(__file__).parent
PARTS = ("hopper", "plans", "directions", "tpu_kernels")


def hopper_rows(device: str) -> Iterator[dict[str, Any]]:
    """Yields a row for each Hopper kernel."""
    for case in kernel_cases.hopper_cases():
        program, report = program_reports.compile_kernel(device, case)
        blocks = 2 if report.shared <= program_reports.HALF else 1
        row = {"kernel": case.name, **report._asdict(), "blocks": blocks}
        yield row | {"bytes": program_reports.traffic(program)}


def tpu_rows(device: str) -> Iterator[dict[str, Any]]:
    """Yields a row for each TPU kernel."""
    for case in kernel_cases.tpu_cases():
        program = described.compile_for(device, case.function, *case.arguments)
        cost = program.cost_analysis()
        row = {"kernel": case.name, "flops": cost["flops"], "bytes": cost["bytes accessed"]}
        yield row | {"memory": program_reports.memory(program)}


def plan_rows(device: str) -> Iterator[dict[str, Any]]:
    """Yields a row for each fusion plan, shape and solver, in bfloat16."""
    for shape in kernel_cases.SHAPES:
        for combination in kernel_cases.TAILS:
            for solver in ("xla", "xla_folded", "hopper"):
                case = kernel_cases.plan_case(combination, shape, "bfloat16", solver)
                yield {
                    "plan": combination,
                    "shape": shape,
                    "solver": solver,
                    **_traffic(device, case),
                }


def direction_rows(device: str) -> Iterator[dict[str, Any]]:
    """Yields a row for each convolution, direction and solver without an epilogue, in bfloat16."""
    for shape in kernel_cases.DIRECTIONS:
        for direction in ("forward", "data", "weight"):
            for solver in ("xla", "hopper"):
                case = kernel_cases.direction_case(direction, shape, solver)
                names = {"direction": direction, "shape": shape, "solver": solver}
                yield names | _traffic(device, case)


def _traffic(device: str, case: kernel_cases.Case) -> dict[str, Any]:
    """Returns the calls of a compiled program, the bytes that it moves, and the least possible."""
    program = described.compile_for(device, case.function, *case.arguments)
    arguments = sum(a.size * a.dtype.itemsize for a in case.arguments)
    return {
        "calls": dict(program_reports.custom_calls(program)),
        "bytes": program_reports.traffic(program),
        "least": arguments + program.memory_analysis().output_size_in_bytes,
    }


def step_rows(device: str) -> Iterator[dict[str, Any]]:
    """Yields a row for the training step of each phase of each configuration, on two devices."""
    for config in steps.CONFIGS:
        for dtype in steps.DTYPES:
            task = steps.task_of(config, dtype)
            for phase in task.phases:
                program = steps.training_step(task, phase, described.devices(device)[:2])
                yield {
                    "config": config,
                    "phase": phase.name,
                    "dtype": dtype,
                    "device": device,
                    "memory": program_reports.memory(program),
                    "collectives": dict(program_reports.collectives(program)),
                    "calls": dict(program_reports.custom_calls(program)),
                }


def page(record: dict[str, Any]) -> list[str]:
    """Returns a record as Markdown."""
    lines = [
        f"Made by `compiled.py` with jax {record['jax']} for a described {record['gpu']} and TPU "
        f"{record['tpu']}; nothing ran. Bytes are those of the operands and results of every "
        "operation that a program launches, in MB."
    ]
    if rows := record["hopper"]:
        lines += ["", "## Hopper's kernels", ""]
        header = ("kernel", "registers", "spilled", "shared memory", "blocks", "bytes")
        lines += table(
            header,
            (
                (r["kernel"], str(r["registers"]), str(r["spills"]), str(r["shared"]))
                + (str(r["blocks"]), _mega(r["bytes"]))
                for r in rows
            ),
        )
    if rows := record["plans"]:
        lines += ["", "## Fusion plans, batch 32, bfloat16", ""]
        lines += _traffic_table("plan", rows)
    if rows := record.get("directions"):
        lines += ["", "## Convolutions without an epilogue, bfloat16", ""]
        lines += _traffic_table("direction", rows)
    if rows := record["tpu_kernels"]:
        lines += ["", "## The TPU's kernels", ""]
        lines += table(
            ("kernel", "GFLOP", "bytes", "memory"),
            (
                (r["kernel"], f"{1e-9 * r['flops']:.2f}", _mega(r["bytes"]), _mega(r["memory"]))
                for r in rows
            ),
        )
    if rows := record.get("steps"):
        lines += ["", "## Training steps on two devices", ""]
        lines += table(
            ("configuration", "phase", "type", "device", "memory", "collectives", "calls"),
            (
                (r["config"], r["phase"], r["dtype"], r["device"], _mega(r["memory"]))
                + (_counted(r["collectives"]), _counted(r["calls"]))
                for r in rows
            ),
        )
    return lines


def _traffic_table(first: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Formats rows with what :func:`_traffic` returns; ``first`` is their first column."""
    return table(
        (first, "shape", "solver", "calls", "bytes", "arguments and result"),
        (
            (r[first], r["shape"], r["solver"], _counted(r["calls"]))
            + (_mega(r["bytes"]), _mega(r["least"]))
            for r in rows
        ),
    )


def _mega(count: float) -> str:
    return f"{1e-6 * count:.1f}"


def _counted(calls: dict[str, int]) -> str:
    return ", ".join(f"{n} `{name}`" for name, n in sorted(calls.items())) or "none"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", default="h200", choices=("h100", "h200"))
    parser.add_argument("--tpu", default="v5e", choices=("v5e", "v6e"))
    parser.add_argument("--steps", action="store_true", help="also compile training steps")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="a folder")
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="the parts to compile; else all")
    options = parser.parse_args(arguments)
    path = options.output / "compiled"
    about = {"jax": jax.__version__, "gpu": options.gpu, "tpu": options.tpu}
    record: dict[str, Any] = about
    if options.parts:
        record = json.loads(path.with_suffix(".json").read_text())
        for name, value in about.items():
            if record[name] != value:
                parser.error(
                    f"--parts: {path}.json has {name} {record[name]}, this is {value}: compile all"
                )
    parts = {
        "hopper": hopper_rows(options.gpu),
        "plans": plan_rows(options.gpu),
        "directions": direction_rows(options.gpu),
        "tpu_kernels": tpu_rows(options.tpu),
    }
    if options.steps:
        parts["steps"] = step_rows(options.gpu)
    wanted = {*(options.parts or parts), "steps"}
    for name, rows in parts.items():
        if name not in wanted:
            continue
        start = time.monotonic()
        record[name] = list(rows)
        print(f"{name}: {len(record[name])} in {time.monotonic() - start:.0f} s", flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    files.write_text(path.with_suffix(".json"), json.dumps(record, indent=1) + "\n")
    files.write_text(path.with_suffix(".md"), "\n".join(page(record)) + "\n")
    print(f"{path}.json, {path}.md")


if __name__ == "__main__":
    main()
