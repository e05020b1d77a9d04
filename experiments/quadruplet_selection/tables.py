"""Makes table 1 of the quadruplet-selection paper from the recorded runs; writes a README there.

    python -m experiments.quadruplet_selection.tables

Reads ``results/*.json`` only. A cell of which no run is recorded says "not run"; behind mean and
deviation stands, in parentheses, of how many runs they are.
"""

import textwrap
from typing import Any

from experiments.quadruplet_selection.run import RESULTS, SEEDS, SETS, chosen_rate
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
    """Returns a row's figure of each recorded run, in percent."""
    runs = (recorded(RESULTS, f"{data}-{row}-{seed}") for seed in SEEDS)
    return [100 * run["evaluation"]["retrieval"]["new"][column] for run in runs if run]


def of_set(data: str) -> list[str]:
    """Returns the table of a data set."""
    rows = []
    for row, title in NAMES.items():
        rate = chosen_rate(data, row)
        own = [cell(figures(data, row, column)) for column in COLUMNS]
        rows.append([title, "not tuned" if rate is None else f"{rate:g}", *own])
    if data.endswith("-pretrained"):
        run = recorded(RESULTS, f"{data}-frozen")
        found = run["evaluation"]["retrieval"]["new"] if run else {}
        own = [f"{100 * found[column]:.1f}" if found else NOT_RUN for column in COLUMNS]
        rows.insert(0, ["The frozen network", "–", *own])
    return table(["method", "learning rate", *TITLES], rows)


def claim(data: str) -> str:
    """Returns whether method 2 > method 1 > random in Recall@1, as the runs have it."""
    found = {row: figures(data, row, "recall_at_1") for row in ("method_2", "method_1", "random")}
    if not all(found.values()):
        return f"{data}: not run."
    means = {row: metrics.summarize(values).mean for row, values in found.items()}
    second, first, drawn = means.values()
    verdict = "holds" if second > first > drawn else "does not hold"
    return (
        f"{data}: method 2 {second:.1f}, method 1 {first:.1f}, random {drawn:.1f}: the order "
        f"of the paper {verdict} in the means."
    )


def tuning(data: str) -> list[str]:
    """Returns the Recall@1 on held-out classes that the learning rates were chosen by."""
    rows, rates = [], SETS[data]["rates"]
    for row, title in NAMES.items():
        recalls = [recall_of(recorded(RESULTS, f"tune-{data}-{row}-{rate:g}")) for rate in rates]
        rows.append([title, *recalls])
    return table(["method", *(f"{rate:g}" for rate in rates)], rows)


def recall_of(run: dict[str, Any] | None) -> str:
    """Returns the cell of a tuning run."""
    if run is None:
        return NOT_RUN
    if "diverged" in run:
        return "diverged"
    return f"{100 * run['evaluation']['retrieval']['new']['recall_at_1']:.1f}"


def paper() -> list[str]:
    rows = [[NAMES[row], *(f"{value:.2f}" for value in PAPER[row])] for row in NAMES]
    return table(["method", *TITLES[:5]], rows)


def longest() -> str:
    """Returns a sentence with how long the runs took, and what they take apart from their steps."""
    runs = [run for path in sorted(RESULTS.glob("*.json")) if (run := recorded(RESULTS, path.stem))]
    if not runs:
        return "No run is recorded."
    last = max(runs, key=lambda run: run["seconds"])
    return (
        f"Of {len(runs)} runs the longest, {last['run']}, took {last['seconds']} s on "
        f"{last['cores']} core(s) of a shared machine, evaluation included. Methods 1 and 2 embed "
        "the training set again once an epoch, which is besides the equal steps. N-pairs has two "
        "images of each class in a batch, so that of MSTAR's six classes it takes 12 and not 64."
    )


def page() -> str:
    lines = [
        "# Quadruplet selection: table 1",
        "",
        "Search among the test classes, none of which was trained on, in percent; mean ± standard",
        "deviation (number of runs). All rows of a set: the same network, a small ResNet-18 (width",
        "16, embedding 128) from random weights or MobileNetV2 from ImageNet's (96 pixels, its",
        "features are the embedding), the same number of steps of 64 images and augmentation; the",
        "learning rate is tuned on classes held out of the training classes.",
        "",
        commits(RESULTS),
        "",
        *textwrap.wrap(longest(), 100),
        "",
        "## The claim: method 2 > method 1 > random in R@1",
        "",
        *(f"- {claim(data)}" for data in SETS),
    ]
    for data in SETS:
        lines += ["", f"## {data}", "", *of_set(data)]
    lines += ["", "## Published, on Cars-196: another data set and a pretrained ResNet-101", ""]
    lines += paper()
    for data in SETS:
        lines += ["", f"## Tuning on {data}: R@1 on the held-out classes by learning rate", ""]
        lines += tuning(data)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (RESULTS / "README.md").write_text(page(), encoding="utf-8")
    print(RESULTS / "README.md")
