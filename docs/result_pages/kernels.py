"""Kernels: docs/results/miopen.md."""

import re
from collections.abc import Iterable
from itertools import product
from statistics import geometric_mean
from typing import Any

from charts import OTHER, OURS, PUBLISHED, Mark, Row, Section

from experiments.kernels.figures import relative
from experiments.records import table
from result_pages.marks import BENCHMARKS, SPAN, Figures, Tables, benchmark, ranged

MOST_FUSED = 2.5  # the largest speed-up of a fused plan in the text of the MIOpen paper, section VI


def _ratios(rows: Iterable[dict[str, Any]], rival: str) -> list[float]:
    """Returns how many times as fast the automatic choice is as a rival."""
    times = [row["milliseconds"] for row in rows if rival in row["milliseconds"]]
    return [time[rival] / time["auto"] for time in times]


def _lists() -> dict[str, list[dict[str, Any]]]:
    """Returns the recorded convolutions by list and direction."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in benchmark("kernels_cpu_float32")["rows"]:
        name = "DeepBench" if row["layer"].startswith("deepbench") else "ResNet"
        groups.setdefault(f"{name}, {row['problem'].split()[0]}", []).append(row)
    return dict(sorted(groups.items(), reverse=True))


def _single(row: dict[str, Any]) -> float:
    """Returns how many times as fast the choice is as the fastest single form."""
    times = row["milliseconds"]
    return min(t for name, t in times.items() if name not in ("auto", "torch")) / times["auto"]


def im2col() -> list[Section]:
    """Figure 6: the automatic choice beside im2col and a product."""
    found = relative(benchmark("kernels_cpu_float32")["rows"])
    rows = [
        ranged(f"{kind}, {direction}", found[kind, direction]["auto"])
        for kind, direction in product(("1×1", "other"), ("forward", "data", "weight"))
    ]
    axis = "times as fast"
    return [Section("Figure 6: choice and im2col + GEMM", rows, axis, log=True, reference=1.0)]


def torch_convolutions() -> list[Section]:
    """The automatic choice beside PyTorch, by list and direction."""
    rows = [ranged(name, _ratios(part, "torch")) for name, part in _lists().items()]
    title = "Convolutions: choice and PyTorch"
    return [Section(title, rows, "times as fast", log=True, reference=1.0)]


def fusions() -> list[Section]:
    """Figure 7: fused plans beside the separate operations."""
    rows = []
    for plan, ratios in _plans().items():
        row = ranged(plan, ratios)
        marks = [Mark(PUBLISHED, MOST_FUSED), *row.marks] if plan == "CBA" else row.marks
        rows.append(Row(plan, marks, row.text))
    return [Section("Figure 7: fused and separate", rows, "times as fast", reference=1.0)]


def _plans() -> dict[str, list[float]]:
    plans: dict[str, list[float]] = {}
    for row in benchmark("fusions_cpu_float32")["rows"]:
        times = row["milliseconds"]
        if "separate" in times and "xla" in times:
            plans.setdefault(row["plan"], []).append(times["separate"] / times["xla"])
    return plans


def recurrent() -> list[Section]:
    """Recurrent layers beside flax and PyTorch, forward and with gradients."""
    sections = []
    titles = {"forward": "forward", "backward": "with gradients"}
    for direction, title in titles.items():
        groups: dict[str, list[dict[str, Any]]] = {}
        for row in benchmark("recurrent_cpu_float32")["rows"]:
            cell, width, way = row["group"].split()
            if way == direction:
                groups.setdefault(f"{cell.upper()} {width}", []).append(row)
        rows = []
        for name, part in groups.items():
            flax, torch = (geometric_mean(_ratios(part, rival)) for rival in ("flax", "torch"))
            text = f"{flax:.2f}, {torch:.2f}"
            rows.append(Row(name, [Mark(OURS, flax), Mark(OTHER, torch)], text))
        sections.append(Section(f"Recurrent layers, {title}", rows, "times as fast", reference=1.0))
    return sections


def convolution_table() -> str:
    """The automatic choice beside the fastest single form and PyTorch."""
    lists = _lists()
    everything = [row for part in lists.values() for row in part]
    groups = {"all": everything}
    for name in ("ResNet", "DeepBench"):
        parts = {key: part for key, part in lists.items() if key.startswith(name)}
        groups[name] = [row for part in parts.values() for row in part]
        groups |= parts
    rows = []
    for name, part in groups.items():
        single, torch = [_single(row) for row in part], _ratios(part, "torch")
        shown = [f"{geometric_mean(one):.2f}, {min(one):.2f}" for one in (single, torch)]
        rows.append([name, str(len(part)), *shown])
    return "\n".join(table(["problems", "number", "fastest single form", "PyTorch"], rows))


def recurrent_table() -> str:
    """The automatic choice beside flax and PyTorch, by layer and batch."""
    layers: dict[str, dict[str, list[float]]] = {}
    for row in benchmark("recurrent_cpu_float32")["rows"]:
        direction, cell, steps, _, _, hidden, *_ = row["problem"].split()
        layer = layers.setdefault(f"{cell.upper()} {hidden[1:]}, {steps[1:]} steps", {})
        for rival in ("flax", "torch"):
            layer.setdefault(f"{direction} {rival}", []).extend(_ratios([row], rival))
    columns = list(product(("forward", "backward"), ("flax", "torch")))
    rows = [
        [name, *(", ".join(f"{one:.2f}" for one in layer[" ".join(c)]) for c in columns)]
        for name, layer in layers.items()
    ]
    header = ["layer", "forward, flax", "PyTorch", "with gradients, flax", "PyTorch"]
    return "\n".join(table(header, rows))


def depthwise_table() -> str:
    """The heuristic's depthwise form beside its former one, XLA's and PyTorch's, by direction."""
    found: dict[str, list[dict[str, float]]] = {}
    for row in benchmark("depthwise_cpu")["rows"]:
        found.setdefault(row["problem"].split()[0], []).append(row["milliseconds"])
    rows = []
    for direction, times in found.items():
        cells = [direction, str(len(times))]
        for rival in ("before", "xla", "torch"):
            ratios = [time[rival] / time["heuristic"] for time in times if rival in time]
            cells.append(f"{geometric_mean(ratios):.2f}, {min(ratios):.2f}")
        rows.append(cells)
    header = ["direction", "layers", "the form chosen before", "XLA's form", "PyTorch"]
    return "\n".join(table(header, rows))


def fusion_table() -> str:
    """Fused plans beside the separate operations."""
    rows = [
        [plan, f"{geometric_mean(one):.2f}", f"{min(one):.2f}", f"{max(one):.2f}", str(len(one))]
        for plan, one in _plans().items()
    ]
    return "\n".join(table(["plan", "geometric mean", "least", "most", "layers"], rows))


def _line(name: str, beginning: str) -> list[str]:
    """Returns the numbers of a summary line of a benchmark's page."""
    lines = (BENCHMARKS / f"{name}.md").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in lines if line.startswith(f"- {beginning}"))
    return re.findall(r"\d+(?:\.\d+)?", line.partition(":")[2])


def convolution_notes() -> str:
    """The comparison with XLA's own form, and the choices that were slower than another form."""
    faster, _, number, cliffs, _, few = _line("kernels_cpu_float32", "against XLA's form")
    slow, again, confirmed = _line("kernels_cpu_float32", "below 0.9 of the best")
    behind = sum(one < 0.5 for one in _ratios(benchmark("kernels_cpu_float32")["rows"], "torch"))
    return (
        f"- **Beside XLA's own form** the choice is {float(faster):.2f} times as fast on {number} "
        f"problems. On {few} more, where that form is extremely slow, it is "
        f"{float(cliffs):.0f} times as fast.\n"
        f"- **Wrong choices.** {slow} choices were slower than 0.9 times the fastest single form; "
        f"{again} of them were timed once more, and {confirmed} were slower again.\n"
        f"- **PyTorch is more than twice as fast** on {behind} problems."
    )


def found_steps() -> str:
    """Whole steps with found kernels, in multiples of the heuristic's speed."""
    text = (BENCHMARKS / "training_step_cpu_find.md").read_text(encoding="utf-8")
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    header, _, *rows = lines
    kept = [header.index(name) for name in ("mode", "pixels", "to the heuristic", "memory")]
    titles = ["mode", "pixels", "speed, times the heuristic's", "memory, times PyTorch's"]
    return "\n".join(table(titles, [[row[i] for i in kept] for row in rows]))


def ffi_table() -> str:
    """The gain of oneDNN's calls through XLA's FFI, by group and version of jax."""
    records = [benchmark(f"ffi_onednn_cpu{end}") for end in ("", "_jax012")]
    titles = [f"jax {record['versions']['jax']}" for record in records]
    names = {"convolution": "convolutions", "lstm": "LSTM layers", "onnx": "ONNX's three models"}
    gains = {
        name: [
            [row["gain"] for row in record["rows"] if row["group"] == group] for record in records
        ]
        for group, name in names.items()
    }
    means = {name: [geometric_mean(each) for each in columns] for name, columns in gains.items()}
    rows = [
        [
            name,
            *(
                f"{mean:.2f} ({min(each):.2f} to {max(each):.2f})"
                for mean, each in zip(means[name], columns, strict=True)
            ),
        ]
        for name, columns in gains.items()
    ]
    overall = [f"{geometric_mean(column):.2f}" for column in zip(*means.values(), strict=True)]
    return "\n".join(table(["group", *titles], [*rows, ["all three", *overall]]))


FIGURES: Figures = {
    "kernels_im2col": (im2col, SPAN),
    "kernels_torch": (torch_convolutions, SPAN),
    "kernels_fusions": (fusions, {PUBLISHED: "published, most", **SPAN}),
    "kernels_recurrent": (recurrent, {OURS: "beside flax", OTHER: "beside PyTorch"}),
}
TABLES: Tables = {
    "convolutions": convolution_table,
    "convolution_notes": convolution_notes,
    "found_steps": found_steps,
    "depthwise": depthwise_table,
    "recurrent": recurrent_table,
    "fusions": fusion_table,
    "ffi": ffi_table,
}
