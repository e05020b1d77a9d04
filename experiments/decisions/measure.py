"""Measures rules of decision on all recorded tasks, constants chosen without the measured task.

    python -m experiments.decisions.measure --workdir=FOLDER

Reads what ``experiments.decisions.run`` and ``experiments.decisions.frozen`` recorded, and writes
``results/decisions.json``, from which docs/results/decisions.md is made. Single scores are computed
once and kept in the folder.
"""

import argparse
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.decisions import evidence, package, thresholds
from experiments.decisions.choices import Table, data_of, rules_of, table_of
from experiments.decisions.combinations import (
    Combination,
    Standardised,
    area,
    standardised,
    trial_areas,
)
from experiments.decisions.rules import standardised as in_units
from experiments.decisions.rules import unit_of
from jaxatr import metrics

RESULTS = Path(__file__).parent / "results"
TPR = 0.95
SHOWN = (
    "softmax", "cbc", "mahalanobis", "knn", "spatial_stage2", "spatial_stage3", "template",
    "auto", "best in trials", "four, sum within 3", "five, sum within 3", "six, sum within 3",
    "six, power 2", "six, smallest", "nine, bent", "eight, bent", "left out", "unlike, left out",
    "forward, left out", "unlike, by trials", "six, by trials", "consensus, by images",
    "consensus, without ViM", "consensus", "consensus, constants left out", "consensus, left out",
    "consensus, by trials",
)  # fmt: skip
"""Rules of the record, in the order of the tables."""


def measured(one: Combination, task: int, table: Table, tested: Combination) -> dict[str, Any]:
    """Measures a combination on a task; its estimate is the AUROC of another one in trials."""
    t = table.tasks[task]
    e, known = t.evidence, t.evidence.test.known
    scores = one.on(e, t.test)
    found: dict[str, Any] = {
        "combination": str(one),
        "auroc": area(scores, known),
        "fpr": metrics.fpr_at_tpr(scores[known], scores[~known], tpr=TPR),
        "regret": float(table.best[task] - area(scores, known)),
        "over_softmax": area(scores, known) - e.singles["softmax"],
    }
    ways = {"validation": one.on(e, t.validation), "calibration": one.on(e, t.calibration)}
    for name, own in ways.items():
        at = package.conformal_threshold(own, TPR)
        if name == "calibration":
            at = thresholds.threshold(own, TPR)
        found[name] = {
            "chips": len(own),
            "known_accepted": float(np.mean(scores[known] >= at)),
            "unknown_accepted": float(np.mean(scores[~known] >= at)),
        }
    if e.queries:
        found["cross"] = _cross(one, t)
    areas = trial_areas(t, tested)
    if areas:
        found["estimate"] = float(np.mean(areas))
    return found


def _cross(one: Combination, t: Standardised) -> dict[str, float]:
    """Measures the acceptance by cross-conformal p-values, which need the fits of all folds."""
    e, unit = t.evidence, unit_of(np.concatenate([part.values for part in t.evidence.folds]))
    known = [one.on(e, in_units(unit, part.values)) for part in e.folds]
    fold = np.repeat(np.arange(len(known)), [len(part) for part in known])
    queries = np.stack([one.on(e, in_units(unit, part.values)) for part in e.queries])
    p = thresholds.cross_p_values(np.concatenate(known), fold, queries)
    accepted = p > 1 - TPR + 1e-9
    return {
        "known_accepted": float(np.mean(accepted[e.test.known])),
        "unknown_accepted": float(np.mean(accepted[~e.test.known])),
    }


def _correct(per: dict[int, dict[str, Any]]) -> None:
    """Adds the estimates less their mean excess on the other tasks."""
    excess = {i: one["estimate"] - one["auroc"] for i, one in per.items() if "estimate" in one}
    for i in excess:
        others = [value for o, value in excess.items() if o != i]
        per[i]["corrected"] = per[i]["estimate"] - float(np.mean(others))


def probabilities(
    chosen: dict[int, Combination], table: Table, prior: float = 200.0
) -> dict[int, dict[str, float]]:
    """Measures ECE of the probability of being known, by three ways of fitting its sigmoid.

    ``usual``: fitted to the other tasks' tests; ``own``: to the task's trials; ``blend`` of both.

    Args:
      chosen: the combination of each task.
      table: the tasks.
      prior: chips that the usual sigmoid counts as in the blend.
    """
    rng = np.random.default_rng(0)
    drawn = {}
    for task, one in chosen.items():
        t = table.tasks[task]
        scores, known = one.on(t.evidence, t.test), t.evidence.test.known
        rows = [rng.choice(np.flatnonzero(side), 200) for side in (known, ~known)]
        drawn[task] = (scores[np.concatenate(rows)], np.arange(400) < 200)
    made: dict[int, dict[str, float]] = {}
    for task, one in chosen.items():
        t = table.tasks[task]
        others = [drawn[o] for o in drawn if o != task]
        usual = package.sigmoid_of(*(np.concatenate(part) for part in zip(*others, strict=True)))
        usual = usual or (0.0, 0.0)  # the score says nothing there: one half
        fits: dict[str, tuple[float, float]] = {"usual": usual}
        if t.trials:
            z = [np.concatenate(trial) for trial in t.trials]
            seen = np.concatenate(
                [np.arange(len(a)) < len(b.known) for a, b in zip(z, t.trials, strict=True)]
            )
            own = package.sigmoid_of(one.on(t.evidence, np.concatenate(z)), seen)
            fewer = int(min(seen.sum(), (~seen).sum()))
            if own is not None:
                fits["own"] = own
            fits["blend"] = thresholds.blended(own, usual, fewer, prior)
        scores, known = one.on(t.evidence, t.test), t.evidence.test.known
        weights = thresholds.even_odds(scores, known)
        made[task] = {}
        for name, (slope, offset) in fits.items():
            p = 1 / (1 + np.exp(-np.clip(slope * scores + offset, -50, 50)))
            made[task][name] = metrics.reliability(p, known, weights=weights).error
    return made


NAMERS = ("head", "nndr_stage2", "nndr_stage3", "nndr_features", "template", "together")
"""Ways to name the class: the head, or the nearest training chip by a map, features, the image, or
the product of distances by two maps and the image twice."""


def naming(t: Standardised) -> dict[str, Any]:
    """Measures what names the class right on known test chips, and two ways of choosing it.

    ``chosen`` is right most often on the calibration chips. ``head unless`` is the head, unless the
    chosen one is better there by two standard errors of the difference. The package takes
    ``together`` if it is right on at least as many calibration chips as the head (``package``).
    """
    test, parts = t.evidence.test, t.evidence.folds or (t.evidence.validation,)
    right = {
        name: np.concatenate([part.named[name] == part.labels for part in parts]) for name in NAMERS
    }
    found: dict[str, Any] = {
        name: float(np.mean((test.named[name] == test.labels)[test.known])) for name in NAMERS
    }
    chosen = max(NAMERS, key=lambda name: right[name].mean())
    gain = right[chosen].astype(float) - right["head"]
    clear = gain.mean() > 2 * gain.std() / np.sqrt(len(gain))
    gain = right["together"].astype(float) - right["head"]
    better = gain.mean() > 2 * gain.std() / np.sqrt(len(gain))
    return found | {
        "chosen": found[chosen],
        "head unless": found[chosen if clear else "head"],
        "package": found["together" if gain.mean() >= 0 else "head"],
        "head unless together": found["together" if better else "head"],
    }


def results(tasks: Iterable[evidence.Evidence]) -> dict[str, Any]:
    """Measures all rules on all tasks."""
    table = table_of([standardised(e) for e in tasks])
    count = len(table.tasks)
    data = [data_of(t.evidence.name) for t in table.tasks]
    made: dict[str, Any] = {"tasks": [], "rules": {}}
    for i, t in enumerate(table.tasks):
        e = t.evidence
        best = max(e.singles, key=lambda name: e.singles[name])
        made["tasks"].append(
            {
                "name": e.name,
                "data": data[i],
                "kind": e.kind,
                "training": e.training,
                "validation": len(e.validation.labels),
                "calibration": len(t.calibration),
                "known": int(e.test.known.sum()),
                "unknown": int((~e.test.known).sum()),
                "trials": len(e.trials),
                "folds": len(e.folds),
                "best": best,
                "best_auroc": float(table.best[i]),
                "named": naming(t),
                "singles": dict(e.singles),
            }
        )
    every = rules_of(table)
    for name in SHOWN:
        meaning, rule = every[name]
        chosen = {i: rule(i, [o for o in range(count) if data[o] != data[i]]) for i in range(count)}
        errors = probabilities(chosen, table)
        tested = chosen
        if name.startswith("consensus"):  # weights by the same trials would look too good in them
            _, plain = every[name.replace(", by trials", "")]
            tested = {i: plain(i, [o for o in range(count) if data[o] != data[i]]) for i in chosen}
        per = {i: measured(one, i, table, tested[i]) for i, one in chosen.items()}
        _correct(per)
        made["rules"][name] = {
            "meaning": meaning,
            "tasks": {
                table.tasks[i].evidence.name: one | {"probability_error": errors[i]}
                for i, one in per.items()
            },
        }
    return made


def main() -> None:
    """Measures and writes the record."""
    parser = argparse.ArgumentParser(description="Measures rules of decision on recorded tasks.")
    parser.add_argument("--workdir", required=True, help="folder of the recorded outputs")
    parser.add_argument("--out", default=str(RESULTS / "decisions.json"))
    flags = parser.parse_args()
    started = time.monotonic()
    made = results(evidence.every(Path(flags.workdir).absolute()))
    made["seconds"] = round(time.monotonic() - started)
    Path(flags.out).parent.mkdir(exist_ok=True)
    Path(flags.out).write_text(json.dumps(rounded(made), indent=0) + "\n")


def rounded(value: Any) -> Any:
    """Rounds the numbers of a record to four digits after the point."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return round(value, 4) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
