"""Tests results, speed and resumption of runs on a real accelerator.

Stages run one after the other, each in its own process with a time limit, so that a kernel that
hangs, aborts or corrupts the device costs only one unit. Each unit is a line of ``rows.jsonl`` that
is on disk before the next unit begins. Run again with the same ``--out`` to continue an interrupted
proof; several short sessions on a device are as good as a long one. Correctness comes first, then
timing, by the device's own clock if it has one.

  ceilings         TFLOP/s of a matrix product and TB/s of a copy
  smoke            one small problem of every kernel
  right            kernels against float32, and twenty identical runs to detect races
  sanitize         compute-sanitizer on the smallest problems
  kernels          kernels against XLA and cuDNN; LSTM layers
  kernels_torch    PyTorch's cuDNN on the same layers
  networks         ResNet-18 and -50 (CBC), training, inference, 64 and 224 pixels, bfloat16, TF32
  networks_torch   the same networks in PyTorch: channels_last, compile, CUDA graphs
  networks_graphs  the networks at 64 pixels, with XLA's CUDA graphs of convolutions
  disk             a whole training from image files on disk
  find             the find step on the convolutions of both lists: a database to ship
  resume           a training killed by SIGKILL and resumed, against an uninterrupted one
  long             CIFAR-10's long recipe, for the rest of the time

A short run proves part of it: ``--only`` takes parts of the names of units. Compiled programs
are kept in ``--out`` for the next call.

Run: python experiments/device/prove.py --minutes 9 [--out FOLDER] [--stages NAME …]
     [--only TEXT …] [--cifar10 FOLDER_OR_ARCHIVE] [--again] [--rehearse]

``--rehearse`` runs all stages on a CPU, with interpreted kernels and tiny sizes.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rows import Rows

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
STAGES = {  # to the most seconds that one call spends on the stage
    "ceilings": 60,
    "smoke": 120,
    "right": 150,
    "sanitize": 90,
    "kernels": 150,
    "kernels_torch": 60,
    "networks": 240,
    "networks_torch": 240,
    "networks_graphs": 90,
    "disk": 120,
    "find": 300,
    "resume": 180,
    "long": 36000,
}
# By default, XLA's graphs leave out the convolutions.
GRAPHS = "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT,CUDNN,CONVOLUTION"
LEAST = 10  # seconds; no stage is started with less time left
OTHER_DEVICE = 4  # exit status of a stage if the record is of another device


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=9.0, help="total time of this call")
    parser.add_argument("--out", type=Path, default=Path("proof"), help="a folder")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    parser.add_argument("--only", nargs="+", default=[], help="parts of names of units")
    parser.add_argument("--cifar10", default="", help="CIFAR-10 as class folders, for long")
    parser.add_argument("--again", action="store_true", help="repeat failed units")
    parser.add_argument("--rehearse", action="store_true", help="run tiny sizes on a CPU")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=0.0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not options.minutes > 0:
        parser.error(f"--minutes: got {options.minutes}, wanted more than 0")
    if options.cifar10 and not Path(options.cifar10).exists():
        parser.error(f"--cifar10: there is no {options.cifar10}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(arguments)
    options.out = options.out.absolute()
    if options.stage:
        return stage(options)
    if options.again:
        rows = Rows(options.out)
        rows.forget({(row["stage"], row["unit"]) for row in finished(rows) if bad(row)})
    end = time.monotonic() + 60 * options.minutes
    for name in options.stages:
        while (left := end - time.monotonic()) >= LEAST:
            limit = left if options.rehearse else min(STAGES[name], left)
            status = in_a_process(name, limit, options)
            if status == OTHER_DEVICE:
                return 2
            if status is None or status == 0:
                break
    rows = Rows(options.out)
    text = "\n".join(page(rows))
    (options.out / "README.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    return 1 if any(bad(row) for row in finished(rows)) else 0


def stage(options: argparse.Namespace) -> int:
    """Runs a stage in this process."""
    rows = Rows(options.out)
    if options.stage.endswith("_torch"):
        import peers as stages
    else:
        import stages
    try:
        units = stages.units(options.stage, rows, options)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return OTHER_DEVICE
    wanted = (unit for unit in units if not options.only or any(t in unit[0] for t in options.only))
    return rows.work(options.stage, wanted)


def in_a_process(name: str, seconds: float, options: argparse.Namespace) -> int | None:
    """Runs a stage in a separate process; returns its exit status, or None if it timed out."""
    kept = {
        "JAXATR_CACHE": str(options.out / "tuned"),
        "JAX_COMPILATION_CACHE_DIR": str(options.out / "compiled"),
    }
    environment = kept | os.environ
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    if options.rehearse:
        environment["JAX_PLATFORMS"] = "cpu"
    if name == "networks_graphs":
        environment["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {GRAPHS}".strip()
    command = [sys.executable, str(HERE / "prove.py"), "--stage", name]
    command += ["--out", str(options.out), "--seconds", str(seconds)]
    command += ["--cifar10", options.cifar10] if options.cifar10 else []
    command += ["--only", *options.only] if options.only else []
    command += ["--rehearse"] if options.rehearse else []
    print(f"{name}: up to {seconds:.0f} s", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    with open(options.out / "log.txt", "a", encoding="utf-8") as log:
        log.write(f"=== {name}\n")
        log.flush()
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            cwd=ROOT,
            env=environment,
            start_new_session=True,  # so that its child processes can be killed with it
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            end_group(process)
    if status == OTHER_DEVICE:
        print((options.out / "log.txt").read_text(encoding="utf-8").splitlines()[-1])
    return status


def end_group(process: subprocess.Popen) -> None:
    """Kills a process with its child processes, and waits for it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def finished(rows: Rows) -> list[dict]:
    return [row for name in STAGES for row in rows.of(name).values()]


def bad(row: dict) -> bool:
    return "failed" in row or row.get("passed") is False


def page(rows: Rows) -> list[str]:
    """Returns the record as Markdown, a table for each stage."""
    wrong = [f"{row['stage']} {row['unit']}" for row in finished(rows) if bad(row)]
    about = next((r for r in rows.rows if r["unit"] == "device"), {})
    lines = [
        f"Made by `experiments/device/prove.py` on {about.get('kind', 'no device yet')}, jax "
        f"{about.get('jax', '?')}.",
        "",
        f"Failed: {', '.join(wrong) or 'nothing'}. Not reached: "
        f"{', '.join(name for name in STAGES if not rows.of(name)) or 'nothing'}.",
    ]
    for name in STAGES:
        if not (part := rows.of(name)):
            continue
        hidden = ("stage", "unit", "at", "seconds")
        fields = list(dict.fromkeys(key for row in part.values() for key in row))
        fields = [field for field in fields if field not in hidden]
        lines += ["", f"## {name}", "", f"| unit | {' | '.join(fields)} |"]
        lines.append(f"|{' --- |' * (1 + len(fields))}")
        for unit, row in part.items():
            lines.append(f"| {unit} | {' | '.join(_cell(row.get(f, '')) for f in fields)} |")
    return lines


def _cell(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|")[:300]


if __name__ == "__main__":
    sys.exit(main())
