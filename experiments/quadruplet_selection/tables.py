"""Writes table 1 of the quadruplet-selection paper from the recorded runs to ``results/README.md``.

    python -m experiments.quadruplet_selection.tables

The script reads ``results/*.json`` only. Cells without a recorded run are "not run". The number of
runs follows mean and standard deviation in parentheses.
"""

import textwrap
from typing import Any

from experiments.quadruplet_selection.run import PRETRAINED, RESULTS, SEEDS, SETS, chosen_rate
from experiments.records import NOT_RUN, cell, commits, recorded, table
from jaxatr import metrics

COLUMNS = ("recall_at_1", "recall_at_2", "recall_at_4", "recall_at_8", "nmi", "map_at_r")
TITLES = ("R@1", "R@2", "R@4", "R@8", "NMI", "MAP@R")
NAMES = {
    "semi_hard": "Semi-hard",
    "lifted_structure": "Lifted structure",
    "n_pairs": "N-pairs",
    "clustering": "Clustering",
    "triplet_global": "Triplet + global",
    "random": "Random quadruplets",
    "method_1": "Method 1",
    "method_2": "Method 2",
}
PAPER = {  # Cars-196, ResNet-101 from ImageNet: R@1, R@2, R@4, R@8, NMI in percent
    "semi_hard": (51.54, 63.78, 73.52, 82.41, 55.38),
    "lifted_structure": (52.98, 65.70, 76.01, 84.27, 56.50),
    "n_pairs": (53.90, 66.76, 77.75, 86.35, 57.24),
    "clustering": (58.11, 70.64, 80.27, 87.81, 59.23),
    "triplet_global": (61.41, 72.51, 81.75, 88.39, 58.61),
    "random": (61.49, 73.41, 82.88, 89.92, 54.50),
    "method_1": (64.85, 75.59, 83.41, 89.55, 57.32),
    "method_2": (66.06, 76.62, 84.84, 90.63, 57.00),
}


def figures(data: str, row: str, column: str) -> list[float]:
    """Returns a measure of a row for each recorded run, in percent."""
    runs = (recorded(RESULTS, f"{data}-{row}-{seed}") for seed in SEEDS)
    return [100 * run["evaluation"]["retrieval"]["new"][column] for run in runs if run]


def of_set(data: str) -> list[str]:
    """Formats the table of a data set."""
    rows = []
    for row, title in NAMES.items():
        rate = chosen_rate(data, row)
        own = [cell(figures(data, row, column)) for column in COLUMNS]
        rows.append([title, "not tuned" if rate is None else f"{rate:g}", *own])
    if data in PRETRAINED:
        run = recorded(RESULTS, f"{data}-frozen")
        measures = run["evaluation"]["retrieval"]["new"] if run else {}
        own = [f"{100 * measures[column]:.1f}" if measures else NOT_RUN for column in COLUMNS]
        rows.insert(0, ["Frozen network", "–", *own])
    return table(["method", "learning rate", *TITLES], rows)


def claim(data: str) -> str:
    """Describes whether method 2 > method 1 > random in the mean Recall@1.

    Of a pretrained set it also names the rows that are not better than the untrained network. If
    one of the three is not recorded, it states the means of those that are.
    """
    recalls = {row: figures(data, row, "recall_at_1") for row in ("method_2", "method_1", "random")}
    if not all(recalls.values()):
        some = [
            f"{NAMES[row].lower()} {metrics.summarize(values).mean:.1f}"
            for row, values in recalls.items()
            if values
        ]
        return f"{data}: {', '.join(some) or 'not run'}.{_beside_frozen(data) if some else ''}"
    found = [metrics.summarize(values) for values in recalls.values()]
    second, first, drawn = (one.mean for one in found)
    verdict = "does not hold"
    if second > first > drawn:
        spread = max((one.deviation for one in found if one.count > 1), default=float("inf"))
        within = min(second - first, first - drawn) < spread
        verdict = "holds, by less than the spread of the runs" if within else "holds"
    return (
        f"{data}: means of method 2 {second:.1f}, method 1 {first:.1f}, random {drawn:.1f}; the "
        f"paper's order {verdict}.{_beside_frozen(data)}"
    )


def _beside_frozen(data: str) -> str:
    """Describes which rows are better than the pretrained network without training."""
    run = recorded(RESULTS, f"{data}-frozen") if data in PRETRAINED else None
    if run is None:
        return ""
    start = 100 * run["evaluation"]["retrieval"]["new"]["recall_at_1"]
    means = {
        title: metrics.summarize(values).mean
        for row, title in NAMES.items()
        if (values := figures(data, row, "recall_at_1"))
    }
    below = [f"{title} ({mean:.1f})" for title, mean in means.items() if mean <= start]
    but = f" except {' and '.join(below)}" if below else ""
    rows = f"every recorded row is better{but}"
    if len(means) == 1:
        rows = f"the only recorded row is {'not ' if below else ''}better"
    return f" The frozen network has {start:.1f}; {rows}."


def tuning(data: str) -> list[str]:
    """Formats the Recall@1 on held-out classes by which the learning rates were chosen."""
    rows, rates = [], SETS[data]["rates"]
    for row, title in NAMES.items():
        recalls = [recall_of(recorded(RESULTS, f"tune-{data}-{row}-{rate:g}")) for rate in rates]
        rows.append([title, *recalls])
    return table(["method", *(f"{rate:g}" for rate in rates)], rows)


def recall_of(run: dict[str, Any] | None) -> str:
    """Formats the cell of a tuning run."""
    if run is None:
        return NOT_RUN
    if "diverged" in run:
        return "diverged"
    return f"{100 * run['evaluation']['retrieval']['new']['recall_at_1']:.1f}"


def paper() -> list[str]:
    rows = [[NAMES[row], *(f"{value:.2f}" for value in PAPER[row])] for row in NAMES]
    return table(["method", *TITLES[:5]], rows)


def longest() -> str:
    """Describes the time of the longest run, and the methods' differences in cost."""
    runs = [run for path in sorted(RESULTS.glob("*.json")) if (run := recorded(RESULTS, path.stem))]
    if not runs:
        return "No run is recorded."
    last = max(runs, key=lambda run: run["seconds"])
    return (
        f"The longest of {len(runs)} runs, {last['run']}, took {last['seconds']} s on "
        f"{last['cores']} core(s) of a shared machine, including the evaluation. In addition to "
        "the equal number of steps, methods 1 and 2 embed the training set once per epoch. N-pairs "
        "has two images of each class in a batch, so its batches of MSTAR's six classes have 12 "
        "images instead of 64."
    )


def page() -> str:
    lines = [
        "# Quadruplet selection: table 1",
        "",
        "Retrieval among test classes that were not used for training, in percent; mean ± standard",
        "deviation (number of runs). All rows of a data set have the same network, number of steps",
        "of 64 images and augmentation. The network is a small ResNet-18 (width 16, embedding 128)",
        "with random initial weights, or MobileNetV2 with ImageNet weights (96 pixels, whose",
        "features are the embedding). The learning rate is tuned on classes held out of the",
        "training classes.",
        "",
        commits(RESULTS),
        "",
        *textwrap.wrap(longest(), 100),
        "",
        "## The paper's claim: method 2 > method 1 > random in R@1",
        "",
        *(f"- {claim(data)}" for data in SETS),
    ]
    for data in SETS:
        lines += ["", f"## {data}", "", *of_set(data)]
    lines += ["", "## Published results on Cars-196, with a pretrained ResNet-101", ""]
    lines += paper()
    for data in SETS:
        lines += ["", f"## Tuning on {data}: R@1 on the held-out classes by learning rate", ""]
        lines += tuning(data)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (RESULTS / "README.md").write_text(page(), encoding="utf-8")
    print(RESULTS / "README.md")
