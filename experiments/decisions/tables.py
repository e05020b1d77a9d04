"""Formats the tables of docs/results/decisions.md from ``results/decisions.json``."""

import json
from statistics import fmean
from typing import Any

from experiments.decisions.measure import RESULTS
from experiments.records import table

SHOWN = (
    "softmax", "cbc", "mahalanobis", "spatial_stage2", "template", "best in trials",
    "unlike, sum", "unlike, power 2", "unlike, smallest", "left out", "default unless trials",
    "weighted by trials",
)  # fmt: skip
"""Rules in the tables, in order."""


def recorded() -> dict[str, Any]:
    """Reads the record."""
    return json.loads((RESULTS / "decisions.json").read_text(encoding="utf-8"))


def tasks() -> str:
    """The tasks: what the chips are, how many there are, and the best single score."""
    rows = [
        [
            one["name"],
            one["kind"],
            f"{one['training']} + {one['validation']}",
            f"{one['known']} / {one['unknown']}",
            str(one["trials"]),
            str(one["folds"]),
            f"{one['best']} {one['best_auroc']:.3f}",
        ]
        for one in recorded()["tasks"]
    ]
    header = ["task", "chips", "training + validation", "test, known / unknown", "trials", "folds"]
    return "\n".join(table([*header, "best single score"], rows))


def rules() -> str:
    """The rules: AUROC, regret, and how far they are below softmax."""
    found, rows = recorded(), []
    for name in SHOWN:
        per = list(found["rules"][name]["tasks"].values())
        regrets = [one["regret"] for one in per]
        rows.append(
            [
                name,
                f"{fmean(one['auroc'] for one in per):.3f}",
                f"{fmean(one['fpr'] for one in per):.3f}",
                f"{fmean(regrets):.3f}",
                f"{max(regrets):.3f}",
                str(sum(one > 0.03 for one in regrets)),
                f"{min(one['over_softmax'] for one in per):+.3f}",
                str(sum(one["over_softmax"] < -0.02 for one in per)),
            ]
        )
    header = ["rule", "AUROC", "FPR at 95 %", "mean regret", "largest", "tasks above .03"]
    return "\n".join(table([*header, "worst against softmax", "more than .02 below"], rows))


def by_task() -> str:
    """AUROC of each rule on each task."""
    found = recorded()
    names = [one["name"] for one in found["tasks"]]
    rows = [
        [task["name"], f"{task['best_auroc']:.3f}"]
        + [f"{found['rules'][name]['tasks'][task['name']]['auroc']:.3f}" for name in SHOWN]
        for task in found["tasks"]
    ]
    assert names
    return "\n".join(table(["task", "best single", *SHOWN], rows))


def acceptance() -> str:
    """Shares accepted at 95 %, by a threshold from the validation and one from all known chips."""
    found, rows = recorded(), []
    name = "left out"
    for task in found["tasks"]:
        one = found["rules"][name]["tasks"][task["name"]]
        cells = [task["name"]]
        for kind in ("validation", "calibration"):
            own = one[kind]
            cells += [
                str(own["chips"]),
                f"{own['known_accepted']:.2f}",
                f"{own['unknown_accepted']:.2f}",
            ]
        rows.append([*cells, f"{one['fpr']:.2f}"])
    header = ["task", "validation chips", "known", "unknown", "folds' chips", "known", "unknown"]
    return "\n".join(table([*header, "unknown at the oracle's threshold"], rows))


def probabilities() -> str:
    """ECE of the probability of being known, and the estimate of the AUROC against the truth."""
    found, rows = recorded(), []
    for name in SHOWN:
        per = list(found["rules"][name]["tasks"].values())
        cells = [name]
        for kind in ("usual", "own", "blend"):
            values = [
                one["probability_error"][kind] for one in per if kind in one["probability_error"]
            ]
            cells.append(f"{fmean(values):.3f} ({len(values)})" if values else "")
        estimated = [one for one in per if "estimate" in one]
        gaps = [one["estimate"] - one["auroc"] for one in estimated]
        cells += [
            f"{fmean(gaps):+.3f}",
            f"{fmean(abs(gap) for gap in gaps):.3f}",
            str(len(gaps)),
        ]
        rows.append(cells)
    header = ["rule", "ECE, usual sigmoid", "own, from trials", "blend", "estimate − AUROC"]
    return "\n".join(table([*header, "mean distance", "tasks"], rows))
