"""Writes tables 2 to 4 of the attentive-distillation paper to ``results/README.md``.

    python -m experiments.attentive_distillation.tables

The script reads ``results/*.json`` only. Cells without a recorded run are "not run". The number of
runs follows mean and standard deviation in parentheses.
"""

import json
from typing import Any

from experiments.attentive_distillation.run import (
    EPOCHS,
    METHODS,
    NEAR_RISE,
    RESULTS,
    SEEDS,
    TARGETS,
    chosen_way,
    margins,
    targets,
    ways,
)
from experiments.records import NOT_RUN, cell, commits, other_settings, recorded, table
from jaxatr import metrics
from jaxatr.explain import method_title
from jaxatr.explain.measures import TITLES

SPEED = RESULTS.parents[1] / "benchmarks" / "results" / "explanations_cpu.json"
PAPER_TABLE2 = {  # top-1 accuracy of target and student
    "ImageNet": (0.7615, 0.7371),
    "CUB-200": (0.8172, 0.84),
    "Cars": (0.8956, 0.8834),
    "Aircraft V": (0.8402, 0.8483),
    "Aircraft F": (0.9200, 0.9600),
    "Aircraft M": (0.9394, 0.9512),
}
PAPER_TABLE3 = {  # frames per second on ImageNet, mean pixel intensity
    "normal inference": (83.3, 1.0),
    "surrogate": (24.4, 0.189),
    "RISE": (0.03, 0.347),
    "Grad-CAM": (34.8, 0.421),
}
PAPER_TABLE4 = {  # insertion, then deletion, on the data sets of table 2
    "surrogate, λ 1e-5": (
        (0.7049, 0.7136, 0.7260, 0.6910, 0.7808, 0.8240),
        (0.1211, 0.0757, 0.0699, 0.0746, 0.1045, 0.1635),
    ),
    "surrogate, λ 1e-4": (
        (0.6517, 0.6895, 0.7152, 0.6894, 0.7726, 0.8145),
        (0.1211, 0.0659, 0.0780, 0.0714, 0.0978, 0.1704),
    ),
    "RISE": (
        (0.7335, 0.7461, 0.7720, 0.7248, 0.8026, 0.8475),
        (0.1077, 0.0588, 0.0658, 0.0569, 0.0762, 0.1383),
    ),
    "LIME": (
        (0.6940, 0.6531, 0.6447, 0.5647, 0.6532, 0.7091),
        (0.1217, 0.1287, 0.1345, 0.1508, 0.1935, 0.3009),
    ),
    "Grad-CAM": (
        (0.6785, 0.6982, 0.7197, 0.6742, 0.7480, 0.8011),
        (0.1253, 0.0805, 0.0798, 0.0740, 0.1049, 0.1735),
    ),
}
MOST_PASSES, MOST_OF_GRAD_CAM = 3.5, 1.5  # limits for the surrogate; the paper's takes 3.4 passes
TRIED = """\
Where the paper's training falls short, the following variants were tried on validation images (see
below): end-to-end training; the masked image scored by the student; the sum of a stage's Δf; the L1
norm per pixel, weighted as in the paper at 224 × 224 pixels; a prior on the map's area instead of
the norm; a decoder of the stages' features instead of Δf; and, instead of the masked image's loss,
a direct estimate of insertion and deletion (`curves`), also with twenty times the weight on
insertion (`curves-insertion`) and with random masks in addition (`masks`), each from Δf and from
features. On CIFAR-100, where none of these met all four aims, longer end-to-end training was tried
as well; for its pretrained target, whose trainings take longer, only the paper's, `masks-features`,
whose maps end at 1 everywhere, and two trainings at a tenth of the rate with the weight 50 on six
masks (`mostly-masks-gentle`), one of them for 2 + 12 epochs and with a wider explanation network.
The chosen variant meets the most aims on validation images. Ties are resolved by the largest
margin, which is the smallest of a variant's margins over the aims."""


def explanations(data: str, way: str) -> list[dict[str, Any]]:
    """Reads the measures of the explanations of each recorded run of a variant."""
    runs = (recorded(RESULTS, f"{data}-{way}-{seed}") for seed in SEEDS)
    return [run["evaluation"]["explanation"] for run in runs if run]


def surrogate(data: str, way: str, measure: str) -> list[float]:
    """Returns a measure of the surrogates of a variant, one value per recorded run."""
    surrogates = [each["methods"]["surrogate"] for each in explanations(data, way)]
    return [each[measure] for each in surrogates if measure in each]


def rival(data: str, method: str, measure: str) -> float | None:
    """Returns a measure of another method, on the surrogates' target and images."""
    for each in explanations(data, "paper"):
        if measure in each["methods"].get(method, {}):
            return each["methods"][method][measure]
    return None


def asked(data: str, method: str) -> str:
    """Formats a method's title with its number of samples in the recorded run."""
    run = recorded(RESULTS, f"{data}-paper-0")
    samples = (run or {}).get("overrides", {}).get(f"distillation.{method}_samples")
    return method_title(method) + (f", N = {samples}" if samples else "")


def table2() -> list[str]:
    """Formats the accuracy of target and student on test images of the known classes."""
    rows = []
    for data in TARGETS:
        runs = explanations(data, "paper")
        target = {each["target_accuracy"] for each in runs}
        rows.append(
            [
                data,
                f"{target.pop():.3f}" if target else NOT_RUN,
                cell([each["student_accuracy"] for each in runs], ".3f"),
                cell([each["agreement"] for each in runs], ".3f"),
            ]
        )
    return table(["data", "target", "student", "agreement"], rows)


def table4(data: str) -> list[str]:
    """Formats all methods on one data set; the surrogate at both λ, and the chosen variant."""
    chosen = chosen_way(data)
    titles = {"paper": "surrogate, λ 1e-5", "paper-1e-4": "surrogate, λ 1e-4"}
    if chosen is not None:
        titles[chosen] = f"{titles.get(chosen, f'surrogate, {chosen}')} (chosen)"
    # Only the simulated vehicles have masks.
    measures = [m for m in TITLES if any(surrogate(data, way, m) for way in titles)]
    measures = measures or list(TITLES)
    rows = [
        [title, *(cell(surrogate(data, way, measure), ".3f") for measure in measures)]
        for way, title in titles.items()
    ]
    for method in METHODS:
        values = [rival(data, method, measure) for measure in measures]
        shown = [NOT_RUN if value is None else f"{value:.3f}" for value in values]
        rows.append([asked(data, method), *shown])
    return table(["method", *(TITLES[measure] for measure in measures)], rows)


def aims(data: str) -> list[str]:
    """Describes whether the surrogate is no worse than Grad-CAM, and within 0.03 of RISE."""
    chosen = chosen_way(data)
    own = {} if chosen is None else {m: surrogate(data, chosen, m) for m in TITLES}
    lines = []
    for measure, sign in (("insertion", 1), ("deletion", -1)):
        others = {name: rival(data, name, measure) for name in ("grad_cam", "rise")}
        if not own.get(measure) or None in others.values():
            lines.append(f"- {data}, {measure}: {NOT_RUN}.")
            continue
        mean = metrics.summarize(own[measure]).mean
        grad, rise = (sign * (mean - (other or 0.0)) for other in others.values())
        words = [
            f"{'no worse than' if grad >= 0 else 'worse than'} Grad-CAM ({grad:+.3f})",
            f"{'within' if rise >= -NEAR_RISE else 'not within'} {NEAR_RISE} of RISE ({rise:+.3f})",
        ]
        lines.append(f"- {data}, {measure}: {' and '.join(words)}.")
    return lines


def tuning(data: str) -> list[str]:
    """Formats the measures on validation images by which the variant was chosen."""
    names = ("insertion", "deletion", "fidelity", "mean_intensity", "student_accuracy")
    others = (recorded(RESULTS, f"rivals-{data}") or {}).get("validation")
    rows = []
    for way in ways(data):
        run = recorded(RESULTS, f"tune-{data}-{way}")
        own = run["validation"] if run else {}
        shown = [f"{own[name]:.3f}" if own else NOT_RUN for name in names]
        met = f"{min(margins(own, others)):+.3f}" if own and others else NOT_RUN
        rows.append([way, *shown[:2], met, *shown[2:]])
    for method, measures in (others or {}).items():
        first, *last = (f"{measures[name]:.3f}" for name in names[:4])
        rows.append([method_title(method), first, last[0], "", *last[1:], ""])
    middle = ["fidelity", "mean intensity", "student's accuracy"]
    return table(["variant", "insertion", "deletion", "margin", *middle], rows)


def table3() -> list[str]:
    """Formats the speed of each method, from the benchmark's record, and the maps' intensity."""
    return [*_speed(), "", "Mean intensity of the maps:", "", *_intensity()]


def _speed() -> list[str]:
    if not SPEED.exists():
        return [f"Speed: {NOT_RUN} (`experiments/benchmarks/explanations.py`)."]
    record = json.loads(SPEED.read_text())
    rows = []
    for size, methods in record["sizes"].items():
        for name, row in methods.items():
            turns = f", N = {row['turns']}" if "turns" in row else ""
            speed = [f"{row['milliseconds']:.2f}", f"{1000 / row['milliseconds']:.3g}"]
            rows.append([size, method_title(name) + turns, *speed, f"{row['passes']:.2f}"])
    note = (
        f"On {record['device']}; medians of alternating rounds. Forward pass, surrogate and "
        f"Grad-CAM process a batch of {record['batch']}. The others process one image at a time, "
        "and are timed on a fraction of their N turns and extrapolated."
    )
    header = ["target", "method", "ms per image", "frames per second", "forward passes"]
    return [note, "", *table(header, rows)]


def _intensity() -> list[str]:
    rows = []
    for title, way in (("surrogate, λ 1e-5", "paper"), ("surrogate, λ 1e-4", "paper-1e-4")):
        columns = (surrogate(data, way, "mean_intensity") for data in TARGETS)
        rows.append([title, *(cell(values, ".3f") for values in columns)])
    for method in METHODS:
        values = [rival(data, method, "mean_intensity") for data in TARGETS]
        shown = [NOT_RUN if value is None else f"{value:.3f}" for value in values]
        rows.append([method_title(method), *shown])
    return table(["method", *TARGETS], rows)


def speed_aims() -> list[str]:
    """Describes whether the surrogate is within its time limits, at each measured size."""
    sizes = json.loads(SPEED.read_text())["sizes"] if SPEED.exists() else {}
    lines = []
    for size, methods in sizes.items():
        passes, grad_cam = (methods[name]["passes"] for name in ("surrogate", "grad_cam"))
        words = [
            f"{'at most' if value <= most else 'more than'} {most:g} {what} ({value:.2f})"
            for value, most, what in (
                (passes, MOST_PASSES, "forward passes"),
                (passes / grad_cam, MOST_OF_GRAD_CAM, "times Grad-CAM's time"),
            )
        ]
        lines.append(f"- {size}: the surrogate takes {' and '.join(words)}.")
    return lines or [f"- speed: {NOT_RUN}."]


def published() -> list[str]:
    table4 = [
        [method, measure, *(f"{value:.4f}" for value in values)]
        for method, both in PAPER_TABLE4.items()
        for measure, values in zip(("insertion", "deletion"), both, strict=True)
    ]
    return [
        *table(
            ["data", "target", "student"],
            ([data, f"{t:.4f}", f"{s:.4f}"] for data, (t, s) in PAPER_TABLE2.items()),
        ),
        "",
        *table(
            ["method", "frames per second", "mean intensity"],
            ([name, f"{fps:g}", f"{level:g}"] for name, (fps, level) in PAPER_TABLE3.items()),
        ),
        "",
        *table(["method", "measure", *PAPER_TABLE2], table4),
    ]


def page() -> str:
    lines = [
        "# Attentive distillation: tables 2 to 4",
        "",
        "Target and student are a ResNet-18 of a quarter of the usual width; for",
        "cifar100-pretrained, an EfficientNet-Lite0 from ImageNet's weights. The student starts",
        "from the target's weights, and is trained for "
        + ", ".join(f"{a} + {b} epochs ({name})" for name, (a, b) in EPOCHS.items())
        + "; the",
        "paper's is trained for 190 + 16. All simulated vehicles are at 1000 m. RISE has 1000",
        "masks instead of its default of 8000. Mean ± standard deviation (number of runs); methods",
        "without training have one value, for one target and one set of test images.",
        "",
        commits(RESULTS),
        "",
        *other_settings(targets(), RESULTS),  # and so their surrogates
        "## Aims: no worse than Grad-CAM, within 0.03 of RISE, fast",
        "",
        *(line for data in TARGETS for line in aims(data)),
        *speed_aims(),
        "",
        TRIED,
        "",
        "## Table 2: accuracy of target and student",
        "",
        *table2(),
        "",
        "## Table 3: speed and intensity",
        "",
        *table3(),
    ]
    for data in TARGETS:
        lines += ["", f"## Table 4: {data}", "", *table4(data)]
    for data in TARGETS:
        lines += ["", f"## Training variants on validation images: {data}", "", *tuning(data)]
    lines += ["", "## Published results: other data sets, ResNet-50 pretrained on ImageNet", ""]
    lines += published()
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (RESULTS / "README.md").write_text(page(), encoding="utf-8")
    print(RESULTS / "README.md")
