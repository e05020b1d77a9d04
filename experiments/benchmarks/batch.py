"""Times predictions of many chips: the plain command, and ``--engine`` with one and two workers.

A small run is trained, and chips of its data set are packed into tar archives, repeated many times.
Each contender predicts a small and a large archive in a separate process. Its rate is computed from
the difference, so that imports, compilation and Ray's startup do not count. While the last
contender predicts the ``--long`` archive, the memory of driver and workers is sampled. ``paper``
extrapolates the rate to a cluster.

Run: python experiments/benchmarks/batch.py [--chips=20000] [--long=200000] [--price=0.1]
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from clock import cores
from small_run import sample_chips, trained

import jaxatr

OUTPUT = Path(__file__).parent / "results" / "batch_cpu.json"
CONTENDERS = {
    "plain command": (),
    "local": ("--engine=local",),
    "ray, 1 worker": ("--engine=ray", "--workers=1"),
    "ray, 2 workers": ("--engine=ray", "--workers=2"),
}
SMALL = 1_000
"""Chips of the small archive, whose time is subtracted."""

WORKERS = 100
EFFICIENCY = 0.9
"""Assumed parallel efficiency of 100 workers, for the last shards and slow disks."""


def packed(run: Path, path: Path, chips: int) -> int:
    """Packs test chips of the run's data set repeatedly; returns the bytes of a chip."""
    contents = []
    for chip in sample_chips(run, 500):
        written = io.BytesIO()
        chip.save(written, "png")
        contents.append(written.getvalue())
    with tarfile.open(path, "w") as archive:
        for number in range(chips):
            content = contents[number % len(contents)]
            info = tarfile.TarInfo(f"{number // 1000:04}/{number:08}.png")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return round(float(np.mean([len(content) for content in contents])))


def predicted(
    run: Path, archive: Path, out: Path, flags: tuple[str, ...], watch: Callable[[int], None]
) -> float:
    """Predicts an archive and returns the seconds; ``watch`` is called with the process's id."""
    target = out if flags else out.with_suffix(".parquet")
    command = [sys.executable, "-m", "jaxatr", "predict", f"--workdir={run}", f"--out={target}"]
    begin = time.monotonic()
    process = subprocess.Popen(
        [*command, *flags, str(archive)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    while process.poll() is None:
        watch(process.pid)
        time.sleep(0.2)
    assert process.stderr is not None
    if process.returncode:
        raise RuntimeError(process.stderr.read().decode())
    return time.monotonic() - begin


def memory(pid: int) -> dict[str, int]:
    """Measures the resident memory of a command and of its workers, in MB."""
    parents, names = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            names[int(path.name)] = (path / "cmdline").read_bytes().decode(errors="replace")
        except OSError:  # the process has ended
            continue
    pids = {pid}
    while more := {one for one, parent in parents.items() if parent in pids} - pids:
        pids |= more
    workers = [one for one in sorted(pids) if names.get(one, "").startswith("ray::Worker")]
    kept = {"driver": pid} | {f"worker {n}": one for n, one in enumerate(workers, 1)}
    return {name: mb for name, one in kept.items() if (mb := _resident(one))}


def _resident(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS")), 0)


def long_run(run: Path, archive: Path, out: Path, every: float) -> list[dict[str, Any]]:
    """Predicts with two workers, sampling the memory and the number of finished parts."""
    samples: list[dict[str, Any]] = []
    begin = time.monotonic()

    def watch(pid: int) -> None:
        now = time.monotonic() - begin
        if not samples or now - samples[-1]["seconds"] >= every:
            parts = len(list(out.glob("part-*.parquet")))
            samples.append({"seconds": round(now, 1), "parts": parts, "MB": memory(pid)})

    predicted(run, archive, out, CONTENDERS["ray, 2 workers"], watch)
    return samples


def paper(
    rate: float,
    bytes_in: float,
    bytes_out: float,
    *,
    price: float,
    chips: int,
    workers: int = WORKERS,
    shard: int = 10_000,
) -> dict[str, float]:
    """Estimates the resources that a cluster needs to predict many chips.

    Args:
      rate: chips per second of one worker.
      bytes_in: bytes of a chip's file.
      bytes_out: bytes of a row of a part.
      price: price of a worker for an hour.
      chips: number of chips.
      workers: number of concurrent workers.
      shard: chips per part.

    >>> found = paper(100, 2e3, 50, price=0.36, chips=10**6)
    >>> round(found["seconds"]), round(found["money"], 2), found["parts"]
    (111, 1.11, 100)
    """
    seconds = chips / (rate * workers * EFFICIENCY)
    return {
        "chips": chips,
        "seconds": seconds,
        "GB read": chips * bytes_in / 1e9,
        "GB written": chips * bytes_out / 1e9,
        "MB/s read": rate * workers * EFFICIENCY * bytes_in / 1e6,
        "parts": -(-chips // shard),
        "worker hours": workers * seconds / 3600,
        "money": workers * seconds / 3600 * price,
    }


def page(record: dict[str, Any]) -> str:
    """Returns the record as Markdown."""
    lines = [
        f"{record['device']}, {record['cores']} cores, jax {record['jax']}; chips of "
        f"{record['bytes a chip']} bytes; {record['chips']:,} chips.",
        "",
        "| | chips per second | compared with the plain command | seconds to the first chip |",
        "|---|---|---|---|",
    ]
    plain = record["rates"]["plain command"]["chips/s"]
    for name, row in record["rates"].items():
        ratio = row["chips/s"] / plain
        lines.append(f"| {name} | {row['chips/s']:.0f} | {ratio:.2f} | {row['start']:.0f} |")
    if samples := record.get("memory"):
        lines += [
            "",
            f"Resident memory over {record['long']:,} chips with two workers:",
            "",
            "| parts done | driver, MB | workers, MB |",
            "|---|---|---|",
        ]
        last = samples[-1]["parts"]
        for share in (0.1, 0.25, 0.5, 0.75, 1.0):
            one = next(s for s in samples if s["parts"] >= share * last)
            workers = [mb for name, mb in one["MB"].items() if name != "driver"]
            listed = ", ".join(map(str, workers)) or "–"
            lines.append(f"| {one['parts']} | {one['MB'].get('driver', '–')} | {listed} |")
    lines += [
        "",
        f"Estimate for {WORKERS} workers with the rate of one, an efficiency of {EFFICIENCY:.0%} "
        f"and a price of {record['price']} per worker hour:",
        "",
        "| chips | seconds | GB read | GB written | MB/s read | parts | worker hours | money |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in record["paper"]:
        lines.append(
            f"| {row['chips']:,} | {row['seconds']:,.0f} | {row['GB read']:,.1f} | "
            f"{row['GB written']:,.2f} | {row['MB/s read']:,.0f} | {row['parts']:,} | "
            f"{row['worker hours']:,.1f} | {row['money']:,.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chips", type=int, default=20_000)
    parser.add_argument(
        "--long", type=int, default=200_000, help="chips of the memory test; 0: none"
    )
    parser.add_argument("--shard", type=int, default=1_000)
    parser.add_argument("--price", type=float, default=0.1, help="price of a worker for an hour")
    parser.add_argument("--out", type=Path, default=OUTPUT)
    flags = parser.parse_args()
    device = jax.devices()[0]
    record: dict[str, Any] = {
        "device": f"{device.platform}, {device.device_kind}",
        "cores": cores(),
        "jax": jax.__version__,
        "chips": flags.chips,
        "long": flags.long,
        "shard": flags.shard,
        "price": flags.price,
        "rates": {},
    }
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        os.environ["JAXATR_COMPILATION_CACHE"] = str(folder / "compiled")
        run, small, large = folder / "run", folder / "small.tar", folder / "large.tar"
        trained(run, 32)
        jaxatr.evaluate(run)
        record["bytes a chip"] = packed(run, small, SMALL)
        packed(run, large, SMALL + flags.chips)
        for name, options in CONTENDERS.items():
            given = (*options, f"--shard={flags.shard}") if options else ()
            times = []
            for archive in (small, small, large):  # the first one compiles
                out = folder / f"{name}-{archive.stem}-{len(times)}"
                times.append(predicted(run, archive, out, given, lambda _: None))
            rate = flags.chips / max(times[2] - times[1], 1e-9)
            record["rates"][name] = {"chips/s": rate, "start": times[1] - SMALL / rate}
            print(f"{name}: {rate:.0f} chips/s", flush=True)
        parts = list((folder / f"local-{large.stem}-2").glob("part-*.parquet"))
        written = sum(path.stat().st_size for path in parts) / (SMALL + flags.chips)
        if flags.long:
            packed(run, folder / "long.tar", flags.long)
            every = max(1.0, flags.long / record["rates"]["ray, 2 workers"]["chips/s"] / 200)
            record["memory"] = long_run(run, folder / "long.tar", folder / "long", every)
        rate = record["rates"]["ray, 1 worker"]["chips/s"]
        record["bytes a row"] = round(written)
        record["paper"] = [
            paper(rate, record["bytes a chip"], written, price=flags.price, chips=chips)
            for chips in (10**6, 10**8)
        ]
    flags.out.write_text(json.dumps(record, indent=1) + "\n")
    flags.out.with_suffix(".md").write_text(page(record))
    print(page(record))


if __name__ == "__main__":
    main()
