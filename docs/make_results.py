"""Draws the figures and fills the tables of the results pages from the recorded runs.

    python docs/make_results.py

Run it again when new results are recorded; it only reads files. Figures go to ``images/results``.
A table stands between ``<!-- recorded: NAME -->`` and ``<!-- end of the record -->``. Runs that are
not recorded are left out of a figure or named "not run". Requires the extra ``dev``.
"""

import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent
sys.path[:0] = [str(FOLDER), str(ROOT)]

from charts import OTHER, OURS, PUBLISHED, Mark, Row, Section, svg  # noqa: E402

from experiments.attentive_distillation import tables as distillation  # noqa: E402
from experiments.attentive_distillation.run import TARGETS, chosen_way  # noqa: E402
from experiments.kernels.figures import mean as geometric_mean  # noqa: E402
from experiments.kernels.figures import relative  # noqa: E402
from experiments.onnx import transfer  # noqa: E402
from experiments.open_set_atr import deciding  # noqa: E402
from experiments.open_set_atr import tables as open_set  # noqa: E402
from experiments.open_set_atr.recorded import RUNS, over_all, percentages, some  # noqa: E402
from experiments.quadruplet_selection import tables as quadruplets  # noqa: E402
from experiments.quadruplet_selection.run import SETS  # noqa: E402
from experiments.records import NOT_RUN, recorded, table  # noqa: E402
from jaxatr import metrics  # noqa: E402

PICTURES = FOLDER / "images" / "results"
BENCHMARKS = ROOT / "experiments" / "benchmarks" / "results"
CONFORMANCE = ROOT / "experiments" / "onnx" / "results" / "conformance.json"
DECISIONS = CONFORMANCE.parent / "decision" / "README.md"
MOST_FUSED = 2.5  # the largest speed-up of a fused plan that MIOpen's text names, section VI

_TABLE = re.compile(
    r"^( *)<!-- recorded: (\w+) -->\n.*?^ *<!-- end of the record -->", re.DOTALL | re.MULTILINE
)


def filled(text: str) -> str:
    """Returns a page with its recorded tables made anew, each indented like its mark."""

    def table_of(found: re.Match[str]) -> str:
        indent, name = found.groups()
        lines = [f"<!-- recorded: {name} -->", "", *TABLES[name]().strip().splitlines(), ""]
        lines.append("<!-- end of the record -->")
        return "\n".join(indent + line if line else "" for line in lines)

    return _TABLE.sub(table_of, text)


# Marks of recorded values


def ours(values: Sequence[float], spec: str = ".1f") -> tuple[list[Mark], str]:
    """Returns the marks and the text of our mean over runs; neither if there is no run."""
    if not values:
        return [], ""
    found = metrics.summarize(values)
    spread = (found.mean - found.deviation, found.mean + found.deviation)
    several = len(values) > 1
    mark = Mark(OURS, found.mean, spread if several else None, values if several else ())
    return [mark], format(found.mean, spec)


def beside(label: str, published: float | None, values: Sequence[float], spec=".1f") -> Row:
    """Returns a row with a published value and ours."""
    marks, text = ours(values, spec)
    if published is not None:
        marks = [Mark(PUBLISHED, published), *marks]
    return Row(label, marks, text or ("not run" if published is not None else ""))


def ranged(label: str, ratios: Sequence[float], kind: str = OURS) -> Row:
    """Returns a row with the geometric mean of ratios and a line from the least to the most."""
    mean = geometric_mean(list(ratios))
    return Row(label, [Mark(kind, mean, (min(ratios), max(ratios)))], f"{mean:.2f}")


def benchmark(name: str) -> dict[str, Any]:
    """Reads the record of a benchmark."""
    return json.loads((BENCHMARKS / f"{name}.json").read_text(encoding="utf-8"))


# Open-set recognition


def by_range() -> list[Section]:
    """Table 1: CBC and SoftMax, by range and band."""
    sections = []
    for side, band in enumerate(open_set.BANDS):
        rows = []
        for place, name in enumerate(open_set.RANGES):
            label = name if name == "combined" else f"{name} m"
            for score in ("cbc", "softmax"):
                published = open_set.PAPER_TABLE1[score][place][side]
                values = percentages(open_set.protocol(name, band), score, "auroc")
                rows.append(beside(f"{label}, {open_set.ALL_NAMES[score]}", published, values))
        sections.append(Section(f"Table 1, {band}", rows, "AUROC, %"))
    return sections


def cifar10() -> list[Section]:
    """Table 3: CIFAR-10, with the PyTorch port of the paper's code."""
    rows = []
    for score, published in open_set.PAPER_TABLE3.items():
        row = beside(
            open_set.ALL_NAMES[score],
            published,
            percentages(["cifar10-paper-code-0"], score, "auroc"),
        )
        peer = open_set.PYTORCH_CIFAR10.get(score)
        marks = [*row.marks, *([Mark(OTHER, 100 * peer)] if peer else [])]
        rows.append(Row(row.label, marks, row.text))
    return [Section("Table 3, CIFAR-10", rows, "AUROC, %")]


def ablation() -> list[Section]:
    """Table 4: the losses, all ranges together."""
    kinds = {"bce-entropy": "BCE, entropy", "cbc": "CBC, no entropy", "full": "CBC, entropy"}
    sections = []
    for side, band in enumerate(open_set.BANDS):
        rows = []
        for kind, label in kinds.items():
            names = [f"table4-{kind}-{band}-{i}-{seed}" for i, seed in product(range(3), range(3))]
            runs = open_set.protocol("combined", band) if kind == "full" else names
            values = percentages(runs, "cbc", "auroc")
            rows.append(beside(label, open_set.PAPER_TABLE4[kind][side], values))
        sections.append(Section(f"Table 4, {band}", rows, "AUROC, %"))
    return sections


def mstar_scores() -> list[Section]:
    """All scores on the same MSTAR networks; a faint point for each run."""
    found = [
        (label, values)
        for score, label in open_set.ALL_NAMES.items()
        if (values := percentages(open_set.mstar_runs(), score, "auroc"))
    ]
    variant = [name for name in RUNS if name.startswith("mstar-auto-")]
    galleries = [
        (score, values)
        for score in ("cbc", "mahalanobis", "spatial_stage2", "template", "fusion_template")
        if (values := percentages(variant, score, "auroc"))
    ]
    titles = ("MSTAR, the paper's method", "MSTAR, the variant cbc:mstar")
    sections = []
    for title, scores in zip(titles, (found, galleries), strict=True):
        scores.sort(key=lambda pair: -statistics.fmean(pair[1]))
        rows = [Row(label, *ours(values)) for label, values in scores]
        if rows:
            sections.append(Section(title, rows, "AUROC, %", reference=50.0))
    return sections


def mstar_peer() -> list[Section]:
    """The same recipe beside a PyTorch port, by split."""
    rows = []
    for score, label in open_set.NAMES.items():
        for split in range(3):
            values = percentages([f"mstar-{split}-cbc-{seed}" for seed in range(3)], score, "auroc")
            marks, text = ours(values)
            peer = Mark(OTHER, 100 * open_set.PYTORCH_MSTAR[score][split])
            rows.append(Row(f"{label}, split {split}", [peer, *marks], text))
    return [Section("MSTAR, beside a PyTorch port", rows, "AUROC, %")]


def default_run() -> list[Section]:
    """The default run: AUROC of the score that decides, by range."""
    results = [found for i in range(3) if (found := RUNS[f"default-{i}"].result(deciding.RESULTS))]
    groups = [] if not results else results[0]["evaluation"]["groups"]
    rows = []
    for group in groups:
        values = [
            100
            * one["evaluation"]["groups"][group]["scores"][one["evaluation"]["decides"]]["auroc"]
            for one in results
        ]
        rows.append(Row(group, *ours(values)))
    return [Section("The default run, three splits", rows, "AUROC, %")] if rows else []


def mstar_table() -> str:
    """The scores on MSTAR, the best first; not every score has a fixed threshold."""
    measures = {
        "auroc": "AUROC",
        "fpr_at_tpr": "FPR at 95 % TPR",
        "oscr": "OSCR",
        "open_accuracy": "open acc., fixed",
        "fitted_open_accuracy": "open acc., fitted",
    }
    runs = open_set.mstar_runs()
    evaluations = [found["scores"] for name in runs if (found := over_all(name))]
    rows = []
    for score, label in open_set.ALL_NAMES.items():
        known = {measure for one in evaluations for measure in one.get(score, {})}
        cells = [some(runs, score, measure) if measure in known else "" for measure in measures]
        rows.append([label, *cells])
    rows.sort(key=lambda row: -float(row[1].split()[0]) if row[1] else 0.0)
    return "\n".join(table(["score", *measures.values()], rows))


# Quadruplet selection


def recall() -> list[Section]:
    """Recall@1 of each loss: published on Cars-196, ours on each set that was run."""
    published = [
        Row(title, [Mark(PUBLISHED, quadruplets.PAPER[row][0])], f"{quadruplets.PAPER[row][0]:.1f}")
        for row, title in quadruplets.NAMES.items()
    ]
    sections = [Section("Published: Cars-196, ResNet-101 of ImageNet", published, "Recall@1, %")]
    for data in SETS:
        rows = [
            Row(title, *ours(quadruplets.figures(data, row, "recall_at_1")))
            for row, title in quadruplets.NAMES.items()
        ]
        if any(row.marks for row in rows):
            sections.append(Section(f"Ours: {data}", rows, "Recall@1, %"))
    return sections


def recall_claim() -> str:
    """The paper's order, on each set."""
    return "\n".join(f"- {quadruplets.claim(data)}" for data in SETS)


def recall_table() -> str:
    """Recall@1, MAP@R and NMI of each loss, on each set that was run."""
    done = [data for data in SETS if quadruplets.figures(data, "random", "recall_at_1")]
    columns = {"recall_at_1": "R@1", "map_at_r": "MAP@R", "nmi": "NMI"}
    header = ["method", "R@1, Cars-196 (published)"]
    header += [f"{title}, {data}" for data, title in product(done, columns.values())]
    rows = []
    for row, title in quadruplets.NAMES.items():
        cells = [
            quadruplets.cell(quadruplets.figures(data, row, column))
            for data, column in product(done, columns)
        ]
        rows.append([title, f"{quadruplets.PAPER[row][0]:.2f}", *cells])
    return "\n".join(table(header, rows))


def selection() -> str:
    """The time of selecting quadruplets, beside other ways to search."""
    found = benchmark("retrieval_cpu")["selection"]
    rows = [[name, f"{seconds:.1f} s"] for name, seconds in found["seconds"].items()]
    size = f"{found['examples']:,} embeddings of {found['dimensions']}"
    return "\n".join(table([size, "time"], rows))


def retrieval_notes() -> str:
    """The extrapolation to a million examples, and the time of the measures."""
    record = benchmark("retrieval_cpu")
    sizes, measures = record["selection by size"], record["measures"]
    million = sizes["a million, by the square of the size"]
    hours = max(million["hours"].values())
    seconds = measures["seconds"]
    return (
        f"- Extrapolated from {len(sizes['rows'])} sizes, a million embeddings of "
        f"{sizes['dimensions']} numbers take {million['megabytes, by the size'] / 1000:.1f} GB and "
        f"{60 * hours:.0f} minutes.\n"
        f"- Of {measures['examples']:,} embeddings of {measures['dimensions']} numbers, Recall@K "
        f"takes {seconds['recall_at_k']:.0f} s, MAP@R {seconds['map_at_r']:.0f} s and NMI "
        f"{seconds['nmi']:.0f} s."
    )


# Attentive distillation


def _curves(measure: str, place: int) -> list[Section]:
    rows = []
    for method, values in distillation.PAPER_TABLE4.items():
        value = values[place][0]
        rows.append(Row(method, [Mark(PUBLISHED, value)], f"{value:.3f}"))
    better = "higher is better" if measure == "insertion" else "lower is better"
    axis = f"{measure} ({better})"
    sections = [Section("Published: ImageNet, ResNet-50", rows, axis)]
    for data in TARGETS:
        ways = {"paper": "surrogate, λ 1e-5", "paper-1e-4": "surrogate, λ 1e-4"}
        if (chosen := chosen_way(data)) is not None:
            ways[chosen] = "surrogate, chosen"
        rows = [
            Row(title, *ours(distillation.surrogate(data, way, measure), ".3f"))
            for way, title in ways.items()
        ]
        for method in ("rise", "lime", "grad_cam"):
            value = distillation.rival(data, method, measure)
            title = distillation.method_title(method)
            rows.append(Row(title, *ours([] if value is None else [value], ".3f")))
        sections.append(Section(f"Ours: {data}", rows, axis))
    return sections


def insertion() -> list[Section]:
    """Table 4, insertion."""
    return _curves("insertion", 0)


def deletion() -> list[Section]:
    """Table 4, deletion."""
    return _curves("deletion", 1)


def passes() -> list[Section]:
    """Table 3: the cost of a map, in forward passes of the network that it explains."""
    speed = distillation.PAPER_TABLE3
    normal = speed["normal inference"][0]
    sizes = json.loads(distillation.SPEED.read_text(encoding="utf-8"))["sizes"]
    rows = []
    for key, title in (("surrogate", "surrogate"), ("grad_cam", "Grad-CAM"), ("rise", "RISE")):
        own = [methods[key]["passes"] for methods in sizes.values() if key in methods]
        mean = geometric_mean(own)
        marks = [Mark(PUBLISHED, normal / speed[title][0]), Mark(OURS, mean, None, own)]
        rows.append(Row(title, marks, f"{mean:,.0f}" if mean > 100 else f"{mean:.2f}"))
    return [Section("Table 3, cost of a map", rows, "forward passes", log=True, reference=1.0)]


def aims() -> str:
    """Whether the chosen surrogate keeps up with Grad-CAM and RISE."""
    return "\n".join([*(line for data in TARGETS for line in distillation.aims(data))])


def distillation_table() -> str:
    """Insertion and deletion of every method on every set."""
    header = ["method"]
    for data in TARGETS:
        header += [f"{data}: insertion", "deletion"]
    rows = []
    for title in ("surrogate, λ 1e-5", "surrogate, λ 1e-4", "surrogate, chosen"):
        cells = []
        for data in TARGETS:
            known = {"surrogate, λ 1e-5": "paper", "surrogate, λ 1e-4": "paper-1e-4"}
            way = known.get(title) or chosen_way(data) or ""
            for measure in ("insertion", "deletion"):
                cells.append(distillation.cell(distillation.surrogate(data, way, measure), ".3f"))
        rows.append([title, *cells])
    for method in ("grad_cam", "rise", "lime"):
        values = [
            distillation.rival(data, method, measure)
            for data, measure in product(TARGETS, ("insertion", "deletion"))
        ]
        cells = [NOT_RUN if value is None else f"{value:.3f}" for value in values]
        rows.append([distillation.asked(next(iter(TARGETS)), method), *cells])
    return "\n".join(table(header, rows))


def distillation_inside() -> str:
    """How much of a map lies on the target's own pixels; only the simulated vehicles have masks."""
    data, measures = "simulated", ("share_inside", "pointing_game")
    rows = []
    for title, way in (("surrogate, λ 1e-5", "paper"), ("surrogate, chosen", chosen_way(data))):
        found = [distillation.surrogate(data, way or "", measure) for measure in measures]
        rows.append([title, *(distillation.cell(values, ".3f") for values in found)])
    for method in ("grad_cam", "rise", "lime"):
        values = [distillation.rival(data, method, measure) for measure in measures]
        cells = [NOT_RUN if value is None else f"{value:.3f}" for value in values]
        rows.append([distillation.asked(data, method), *cells])
    return "\n".join(table(["method", "share inside", "pointing game"], rows))


# Kernels


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


# ONNX


def conformance() -> str:
    """How many tests of ONNX's own suite pass, by kind."""
    tests = json.loads(CONFORMANCE.read_text(encoding="utf-8"))
    rows = []
    for kind in dict.fromkeys(test["kind"] for test in tests):
        part = [test for test in tests if test["kind"] == kind]
        passed = sum(not test["reason"] for test in part)
        rows.append([kind, str(passed), str(len(part)), f"{100 * passed / len(part):.1f} %"])
    return "\n".join(table(["kind of test", "passed", "of", ""], rows))


def decisions() -> str:
    """How far exported decisions are from ``predict``."""
    text = DECISIONS.read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if line.startswith("|"))


def transferred() -> list[Section]:
    """Accuracy by steps: from the file, and from random weights."""
    rows = []
    for steps in transfer.STEPS:
        for kind, label in (("transfer", "from the file"), ("scratch", "from scratch")):
            runs = [recorded(transfer.RESULTS, f"{kind}-{steps}-{seed}") for seed in transfer.SEEDS]
            values = [100 * r["evaluation"]["groups"]["all"]["closed_accuracy"] for r in runs if r]
            rows.append(Row(f"{steps} steps, {label}", *ours(values)))
    return [Section("Transfer through a file, MSTAR", rows, "accuracy, %")]


def _engines() -> dict[str, dict[str, float]]:
    return benchmark("onnx_inference_cpu")["models"]


def onnxruntime() -> list[Section]:
    """Speed of models that were read from ONNX, in multiples of onnxruntime's."""
    rows = []
    for name, found in _engines().items():
        value = found["times onnxruntime"]
        rows.append(Row(name.removeprefix("light_"), [Mark(OURS, value)], f"{value:.2f}"))
    title = "Inference, two CPU cores"
    return [Section(title, rows, "times onnxruntime", reference=1.0)]


def onnxruntime_table() -> str:
    """Times of models that were read from ONNX, beside onnxruntime's."""
    rows = [
        [
            name.removeprefix("light_"),
            *(f"{found[engine]:.1f} ms" for engine in ("jaxatr", "onnxruntime")),
            f"{found['times onnxruntime']:.2f}",
            f"{found['loading']:.2f} s",
        ]
        for name, found in _engines().items()
    ]
    return "\n".join(table(["model", "jaxatr", "onnxruntime", "ratio", "loading"], rows))


_BOTH = {PUBLISHED: "published", OURS: "jaxatr: mean, sd, runs"}
_OWN = {OURS: "mean, sd, runs"}
_SPAN = {OURS: "geometric mean, least to most"}
FIGURES: dict[str, tuple[Callable[[], list[Section]], dict[str, str]]] = {
    "open_set_table1": (by_range, _BOTH),
    "open_set_table3": (
        cifar10,
        {PUBLISHED: "published", OTHER: "PyTorch port", OURS: "jaxatr"},
    ),
    "open_set_table4": (ablation, _BOTH),
    "open_set_mstar": (mstar_scores, _OWN),
    "open_set_peer": (mstar_peer, {OTHER: "PyTorch port", **_BOTH, PUBLISHED: ""}),
    "open_set_default": (default_run, _OWN),
    "quadruplets_recall": (recall, _BOTH),
    "distillation_insertion": (insertion, _BOTH),
    "distillation_deletion": (deletion, _BOTH),
    "distillation_passes": (passes, {PUBLISHED: "published", OURS: "jaxatr, five networks"}),
    "kernels_im2col": (im2col, _SPAN),
    "kernels_torch": (torch_convolutions, _SPAN),
    "kernels_fusions": (fusions, {PUBLISHED: "published, most", **_SPAN}),
    "kernels_recurrent": (recurrent, {OURS: "beside flax", OTHER: "beside PyTorch"}),
    "onnx_transfer": (transferred, _OWN),
    "onnx_speed": (onnxruntime, {OURS: "jaxatr"}),
}
TABLES: dict[str, Callable[[], str]] = {
    "default": deciding.default,
    "deciding": deciding.deciding,
    "decoys": deciding.held_out,
    "clutter": deciding.controls,
    "recipes": deciding.recipes,
    "calibrated": deciding.calibrated,
    "cifar10_recipes": deciding.cifar10_recipes,
    "cifar10_pretrained": open_set.cifar10_pretrained,
    "mstar": mstar_table,
    "table1": open_set.table1,
    "table2": open_set.table2,
    "table4": open_set.table4,
    "recall": recall_table,
    "recall_claim": recall_claim,
    "distillation": distillation_table,
    "distillation_aims": aims,
    "distillation_speed": lambda: "\n".join(distillation.speed_aims()),
    "convolutions": convolution_table,
    "convolution_notes": convolution_notes,
    "found_steps": found_steps,
    "retrieval_notes": retrieval_notes,
    "distillation_inside": distillation_inside,
    "recurrent": recurrent_table,
    "fusions": fusion_table,
    "conformance": conformance,
    "onnxruntime": onnxruntime_table,
    "decisions": decisions,
    "selection": selection,
}


def main() -> None:
    """Draws all figures and fills all pages."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, (make, legend) in FIGURES.items():
        title = (make.__doc__ or name).partition("\n")[0]
        shown = {kind: words for kind, words in legend.items() if words}
        (PICTURES / f"{name}.svg").write_text(svg(title, make(), shown), encoding="utf-8")
    for page in sorted(FOLDER.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if (made := filled(text)) != text:
            page.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
