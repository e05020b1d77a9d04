"""Tables of docs/results/kernels.md: the measurements of prove.py on a GPU."""

import functools
import json
from collections.abc import Sequence
from statistics import geometric_mean

from experiments.records import table
from result_pages.marks import ROOT, Figures, Tables

RESULTS = ROOT / "experiments" / "device" / "results" / "h200"


@functools.cache
def measured(stage: str) -> dict[str, dict]:
    """Returns the rows of a stage by the name of their unit."""
    lines = (RESULTS / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for line in lines if (row := json.loads(line))["stage"] == stage]
    return {row["unit"]: row for row in rows if "begun" not in row}


def _layers(kind: str, end: str) -> list[str]:
    """Returns the names of the layers of a kind, from the units whose names have this end."""
    names = [name for name in measured("kernels") if name.startswith(kind)]
    return [name[len(kind) + 1 : -len(end) - 1] for name in names if name.endswith(end)]


def _means(rows: Sequence[dict[str, float]], ours: str) -> list[str]:
    """Returns how many times as fast as each of the others ours is, in the geometric mean."""
    ratios = {name: geometric_mean([row[name] / row[ours] for row in rows]) for name in rows[0]}
    return ["" if name == ours else f"{ratio:.2f}" for name, ratio in ratios.items()]


def convolutions() -> str:
    """Microseconds of a plain convolution, and of one with an epilogue, by form."""
    plain = {"hopper": "hopper plain", "xla": "xla plain", "PyTorch": "plain"}
    fused = {f"{name}, fused": f"{name} full" for name in ("hopper", "xla", "xla_folded")}
    layers = _layers("conv", "hopper plain")
    found = measured("kernels") | measured("kernels_torch")

    def times(ends: dict[str, str]) -> list[dict[str, float]]:
        return [
            {label: 1e3 * found[f"conv {layer} {end}"]["device_ms"] for label, end in ends.items()}
            for layer in layers
        ]

    rows = [one | other for one, other in zip(times(plain), times(fused), strict=True)]
    cells = [
        [layer, *(f"{us:.1f}" for us in row.values())]
        for layer, row in zip(layers, rows, strict=True)
    ]
    last = ["hopper, times as fast", *_means(times(plain), "hopper")]
    last += _means(times(fused), "hopper, fused")
    return "\n".join(table(["layer", *plain, *fused], [*cells, last]))


def gradients() -> str:
    """Microseconds of a convolution's gradients, by solver, where both were measured."""
    ours, torch = measured("kernels"), measured("kernels_torch")
    rows, cells = [], []
    for direction in ("data", "weight"):
        for layer in _layers("conv", f"{direction} hopper"):
            unit = f"conv {layer} {direction}"
            found = {name: ours[f"{unit} {name}"] for name in ("hopper", "xla")}
            found["PyTorch"] = torch[unit]
            rows.append({name: 1e3 * row["device_ms"] for name, row in found.items()})
            cells.append([f"{layer}, {direction}", *(f"{us:.1f}" for us in rows[-1].values())])
    last = ["hopper, times as fast", *_means(rows, "hopper")]
    return "\n".join(table(["gradient", *rows[0]], [*cells, last]))


def persistent() -> str:
    """Milliseconds of small recurrent layers: all steps in one launch, and PyTorch's."""
    ours, torch = measured("kernels"), measured("kernels_torch")
    cells = []
    for cell in ("lstm", "gru"):
        for sizes in _layers(cell, "persistent forward"):
            unit = f"{cell} {sizes}"
            forward = [ours[f"{unit} persistent forward"], torch[f"{unit} forward"]]
            times = [row["device_ms"] for row in forward]
            backward = ours[f"{unit} persistent gradient"]["device_ms"]
            ratio = f"{times[1] / times[0]:.2f}"
            shown = [*(f"{ms:.3f}" for ms in times), ratio, f"{backward:.3f}"]
            cells.append([f"{cell.upper()} {sizes}", *shown])
    header = ["layer", "persistent", "PyTorch", "times as fast", "persistent, with its gradient"]
    return "\n".join(table(header, cells))


def recurrent() -> str:
    """Milliseconds of an LSTM layer, by algorithm."""
    rows = {}
    for sizes in _layers("lstm", "hopper forward"):
        ours = {name: f"lstm {sizes} {name} forward" for name in ("hopper", "gemm", "scan")}
        row = {name: measured("kernels")[unit]["device_ms"] for name, unit in ours.items()}
        rows[sizes] = row | {
            "PyTorch": measured("kernels_torch")[f"lstm {sizes} forward"]["device_ms"]
        }
    cells = [[sizes, *(f"{ms:.3f}" for ms in row.values())] for sizes, row in rows.items()]
    last = ["hopper, times as fast", *_means(list(rows.values()), "hopper")]
    return "\n".join(table(["batch × units", *next(iter(rows.values()))], [*cells, last]))


def networks() -> str:
    """Images a second of whole networks, and PyTorch's where it was measured."""
    cells = []
    for name, row in measured("networks").items():
        peers = {
            unit.removeprefix(name).strip(): peer["images_per_s"]
            for unit, peer in measured("networks_torch").items()
            if unit.startswith(name)
        }
        best = max(peers.items(), key=lambda pair: pair[1]) if peers else None
        peer = f"{best[1]:,.0f} ({best[0]})" if best else ""
        ratio = f"{row['images_per_s'] / best[1]:.2f}" if best else ""
        shown = [f"{row['images_per_s']:,.0f}", peer, ratio, f"{row['first_step_s']:.0f} s"]
        cells.append([name, str(row["batch"]), *shown])
    header = ["network", "batch", "images/s", "PyTorch", "times PyTorch's", "first step"]
    return "\n".join(table(header, cells))


FIGURES: Figures = {}
TABLES: Tables = {
    "device_convolutions": convolutions,
    "device_gradients": gradients,
    "device_recurrent": recurrent,
    "device_persistent": persistent,
    "device_networks": networks,
}
