"""ONNX: docs/results/onnx.md."""

import json
from collections.abc import Mapping
from functools import partial

from charts import OTHER, OURS, Mark, Row, Section

from experiments.onnx import transfer
from experiments.records import recorded, table
from result_pages.marks import OWN, ROOT, Figures, Tables, benchmark, ours

CONFORMANCE = ROOT / "experiments" / "onnx" / "results" / "conformance.json"
DECISIONS = CONFORMANCE.parent / "decision" / "README.md"


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


def onnxruntime() -> list[Section]:
    """Speed of models that were read from ONNX, in multiples of onnxruntime's."""
    rows = []
    for found in benchmark("onnx_inference_cpu_jax012")["rows"]:
        ratios = found["times onnxruntime"]
        marks = [Mark(OTHER, ratios["engine"]), Mark(OURS, ratios["jaxatr"])]
        rows.append(Row(f"{found['model']} × {found['batch']}", marks, f"{marks[1].value:.2f}"))
    title = "Model × batch, two CPU cores, jax 0.12"
    return [Section(title, rows, "times onnxruntime", reference=1.0)]


def onnxruntime_table() -> str:
    """Times of models that were read from ONNX, beside onnxruntime's."""
    who = ("jaxatr", "engine", "onnxruntime")
    rows = [
        [
            f"{found['model']}, batch {found['batch']}",
            *(f"{found['ms'][one]:.2f} ms" for one in who),
            *(f"{found['times onnxruntime'][one]:.2f}" for one in who[:2]),
            f"{found['loading']:.2f} s",
        ]
        for found in benchmark("onnx_inference_cpu_jax012")["rows"]
    ]
    header = ["model", "jaxatr", "written again, in onnxruntime", "onnxruntime"]
    return "\n".join(table([*header, "ratio: jaxatr", "ratio: written again", "loading"], rows))


def precision(file: str) -> str:
    """Figures of int8 and float16 beside those of float32."""
    rows = []
    recorded_runs = json.loads((CONFORMANCE.parent / file).read_text(encoding="utf-8"))["runs"]
    for name, run in recorded_runs.items():
        full = run["precisions"]["float32"]
        for kind in ("int8", "float16"):
            one = run["precisions"][kind]
            rows.append(
                [
                    f"{name}, {kind}",
                    *_decided(one, full),
                    *(f"{one[key] / full[key]:.2f}" for key in ("megabytes", "network megabytes")),
                    *(f"{one[key]:.2f}" for key in ("rate", "network rate")),
                ]
            )
    of_run, of_network = "with the decision", "network alone"
    header = ["run", "equal decisions", "AUROC", "closed accuracy"]
    header += [f"file ×, {of_run}", f"file ×, {of_network}"]
    header += [f"rate ×, {of_run}", f"rate ×, {of_network}"]
    return "\n".join(table(header, rows))


def bfloat16() -> str:
    """Figures of bfloat16 by oneDNN beside those of float32 by XLA, and rates of both by oneDNN."""
    rows = []
    record = json.loads((CONFORMANCE.parent / "bfloat16_cpu.json").read_text(encoding="utf-8"))
    for name, run in record["runs"].items():
        full, same, narrow = run["runtimes"].values()
        rates = (f"{one[key]:.2f}" for key in ("rate", "network rate") for one in (same, narrow))
        rows.append([name, *_decided(narrow, full), *rates])
    header = ["run", "equal decisions", "AUROC", "closed accuracy"]
    for part in ("with the decision", "network alone"):
        header += [f"float32 by oneDNN ×, {part}", f"bfloat16 ×, {part}"]
    return "\n".join(table(header, rows))


def _decided(one: Mapping[str, float], full: Mapping[str, float]) -> list[str]:
    """Formats the decisions of a network beside those in float32."""
    areas = [f"{one[key]:.3f} ({one[key] - full[key]:+.3f})" for key in ("auroc", "closed")]
    return [f"{100 * one['equal']:.1f} %", *areas]


FIGURES: Figures = {
    "onnx_transfer": (transferred, OWN),
    "onnx_speed": (onnxruntime, {OURS: "jaxatr", OTHER: "written again, in onnxruntime"}),
}
TABLES: Tables = {
    "conformance": conformance,
    "onnxruntime": onnxruntime_table,
    "decisions": decisions,
    "precision": partial(precision, "precision_cpu.json"),
    "bfloat16": bfloat16,
    "precision_amx": partial(precision, "precision_cpu_amx.json"),
    "precision_no_vnni": partial(precision, "precision_cpu_no_vnni.json"),
}
