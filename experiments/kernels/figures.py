"""Draws figures 6 and 7 of the MIOpen paper (Khan et al. 2019) from the benchmarks' records.

Figure 6 shows every algorithm's speed relative to im2col (``matmul``), for 1x1 and other kernels in
the three directions. Figure 7 shows fused plans relative to the separate operations. A third
figure, not in the paper, shows recurrent layers relative to flax and PyTorch. Nothing is measured
here; figures without a record are skipped.

Run: python experiments/kernels/figures.py [--device cpu] [--dtype float32]
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

plt.rcParams["svg.hashsalt"] = "jaxatr"  # makes the files reproducible

HERE = Path(__file__).parent
RECORDED = HERE.parent / "benchmarks" / "results"
BASE = "matmul"
DIRECTIONS = ("forward", "data", "weight")
KERNELS = ("1×1", "other")


def relative(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, list[float]]]:
    """Returns the speed-ups of each algorithm by kind of kernel and direction."""
    ratios: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        direction, _, window, *_ = row["problem"].split()
        kind = "1×1" if window.startswith("1x1x") else "other"
        times = row["milliseconds"]
        if BASE not in times:  # it failed or needed too much memory
            continue
        for name, time in times.items():
            if name != BASE:
                ratios[kind, direction][name].append(times[BASE] / time)
    return ratios


def algorithms(record: dict[str, Any]) -> Figure:
    """Draws figure 6: a point per problem and a bar for the geometric mean."""
    by_kind = relative(record["rows"])
    names = sorted({name for part in by_kind.values() for name in part} - {"auto", "torch"})
    names = [*names, "auto", "torch"]
    figure, axes = plt.subplots(2, 3, figsize=(13, 7), sharex=True, sharey="row")
    for line, kind in zip(axes, KERNELS, strict=True):
        for axis, direction in zip(line, DIRECTIONS, strict=True):
            part = by_kind.get((kind, direction), {})
            for place, name in enumerate(names):
                if ratios := part.get(name):
                    axis.plot([place] * len(ratios), ratios, ".", color="0.6", markersize=4)
                    mean = geometric_mean(ratios)
                    axis.plot([place - 0.3, place + 0.3], [mean, mean], color="C0", lw=2.5)
            axis.axhline(1, color="0.3", lw=0.8)
            axis.set_yscale("log")
            axis.set_title(f"{kind}, {direction}", fontsize=10)
            axis.set_xticks(range(len(names)), names, rotation=60, ha="right")
        line[0].set_ylabel("times as fast as im2col + product")
    return finished(figure, record)


def fusions(record: dict[str, Any]) -> Figure:
    """Draws figure 7: bars of each plan's speed-up, grouped by layer."""
    timed = [row for row in record["rows"] if "separate" in row["milliseconds"]]
    plans = list(dict.fromkeys(row["plan"] for row in timed))
    figure, axes = plt.subplots(len(plans), 1, figsize=(10, 3 * len(plans)), squeeze=False)
    for axis, plan in zip(axes[:, 0], plans, strict=True):
        rows = [row for row in timed if row["plan"] == plan]
        solvers = sorted({name for row in rows for name in row["milliseconds"]} - {"separate"})
        width = 0.8 / len(solvers)
        for index, name in enumerate(solvers):
            bars = [
                (place + width * index, row["milliseconds"]["separate"] / row["milliseconds"][name])
                for place, row in enumerate(rows)
                if name in row["milliseconds"]
            ]
            axis.bar(*zip(*bars, strict=True), width=width, label=name)
        axis.axhline(1, color="0.3", lw=0.8)
        axis.set_xticks(range(len(rows)), [row["layer"] for row in rows], rotation=30, ha="right")
        axis.set_ylabel("separate / fused")
        axis.set_title(f"{plan}, batch {record['batch']}", fontsize=10)
        axis.legend(fontsize=8)
    return finished(figure, record)


def networks(record: dict[str, Any]) -> Figure:
    """Draws the speed-up of the automatic choice over flax and PyTorch, a panel per direction."""
    figure, axes = plt.subplots(2, 1, figsize=(10, 8), squeeze=False)
    for axis, direction in zip(axes[:, 0], ("forward", "backward"), strict=True):
        rows = [
            row
            for row in record["rows"]
            if row["milliseconds"] and row["problem"].startswith(direction)
        ]
        for peer, shift in (("flax", -0.2), ("torch", 0.2)):
            bars = [
                (place + shift, row["milliseconds"][peer] / row["milliseconds"]["auto"])
                for place, row in enumerate(rows)
                if peer in row["milliseconds"]
            ]
            axis.bar(*zip(*bars, strict=True) if bars else ([], []), width=0.4, label=peer)
        labels = [" ".join(row["problem"].split()[1:-1]) for row in rows]
        axis.axhline(1, color="0.3", lw=0.8)
        axis.set_xticks(range(len(rows)), labels, rotation=30, ha="right", fontsize=7)
        axis.set_ylabel("times as fast")
        axis.set_title("forward and backward" if direction == "backward" else "forward")
        axis.legend(fontsize=8)
    return finished(figure, record)


def finished(figure: Figure, record: dict[str, Any]) -> Figure:
    """Adds a title with the device, the type and the version of jax."""
    figure.suptitle(f"{record['device']}, {record['dtype']}, jax {record['jax']}", fontsize=9)
    figure.tight_layout()
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu, gpu or tpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--records", type=Path, default=RECORDED, help="a folder")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="a folder")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    for name, recorded, draw in (
        ("figure6", "kernels", algorithms),
        ("figure7", "fusions", fusions),
        ("networks", "recurrent", networks),
    ):
        stem = f"{recorded}_{options.device}_{options.dtype}"
        path = options.records / f"{stem}.json"
        if not path.is_file():
            print(f"{name}: not drawn, there is no record {path}")
            continue
        record = json.loads(path.read_text(encoding="utf-8"))
        if not any(row["milliseconds"] for row in record["rows"]):
            print(f"{name}: not drawn, nothing in {path} was timed")
            continue
        target = options.output / f"{name}_{stem}.svg"
        draw(record).savefig(target, metadata={"Date": None})
        print(f"{name}: {target}")


if __name__ == "__main__":
    main()
