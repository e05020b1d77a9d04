"""Formats the tables of docs/results/decisions.md from ``results/decisions.json``."""

import json
from statistics import fmean
from typing import Any

from experiments.decisions.measure import RESULTS
from experiments.open_set_atr.run import RESULTS as OPEN_SET
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


RECORDED = {
    "simulated, held-out vehicles, no decoys": "held-out-none-",
    "simulated, held-out vehicles, decoys": "held-out-half-",
    "MSTAR, reference splits": "mstar-auto-",
    "MSTAR, fresh splits": "mstar-fresh-",
    "MSTAR, 48 px": "mstar-strong-",
    "MSTAR, held-out vehicles": "recipe-plain-",
    "CIFAR-10, ImageNet, held-out classes": "cifar10-recipe-plain-",
}
"""Trained networks of the open-set experiments whose single scores and sums were recorded."""


def _evaluations(prefix: str) -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in sorted(OPEN_SET.glob(f"{prefix}*.json"))]
    return [one["evaluation"] for one in found if "evaluation" in one]


def trained() -> str:
    """AUROC of recorded scores on trained networks, with the mean and the largest regret."""
    areas: dict[str, dict[str, float]] = {}
    for label, prefix in RECORDED.items():
        scores = [one["groups"]["all"]["scores"] for one in _evaluations(prefix)]
        for name in set.intersection(*map(set, scores)):
            areas.setdefault(name, {})[label] = fmean(one[name]["auroc"] for one in scores)
    best = {label: max(own[label] for own in areas.values() if label in own) for label in RECORDED}
    rows = []
    for name, own in areas.items():
        if len(own) < len(RECORDED) - 1:  # the last group has no maps
            continue
        regrets = [best[label] - value for label, value in own.items()]
        cells = [f"{own[label]:.3f}" if label in own else "" for label in RECORDED]
        rows.append((fmean(regrets), [name, *cells, f"{fmean(regrets):.3f}", f"{max(regrets):.3f}"]))
    header = ["score", *RECORDED, "mean regret", "largest"]
    return "\n".join(table(header, [cells for _, cells in sorted(rows)]))


def printed() -> str:
    """The AUROC that runs printed as held-out, and that of the test, by how it was estimated."""
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for path in sorted(OPEN_SET.glob("*.json")):
        decision = json.loads(path.read_text()).get("evaluation", {}).get("decision", {})
        one = decision.get("candidates", {}).get(decision.get("decides"), {})
        if "auroc" in one and "auroc" in decision.get("test", {}):
            kind = "trials" if "trainings" in decision["by"] else "the network has seen them"
            data = path.stem.split("-")[0]
            groups.setdefault((data, kind), []).append((one["auroc"], decision["test"]["auroc"]))
    rows = [
        [
            data,
            kind,
            str(len(pairs)),
            f"{fmean(a for a, _ in pairs):.3f}",
            f"{fmean(b for _, b in pairs):.3f}",
            f"{fmean(abs(a - b) for a, b in pairs):.3f}",
        ]
        for (data, kind), pairs in groups.items()
    ]
    header = ["runs", "known classes held out by", "runs", "printed", "AUROC of the test"]
    return "\n".join(table([*header, "mean distance"], rows))
