"""Measures rules of decision on all recorded tasks, constants chosen without the measured task.

    python -m experiments.decisions.measure --workdir=FOLDER

Reads what ``experiments.decisions.run`` and ``experiments.decisions.frozen`` recorded, and writes
``results/decisions.json``, from which docs/results/decisions.md is made. Single scores are computed
once and kept in the folder.
"""

import argparse
import itertools
import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.decisions import evidence, package, thresholds
from experiments.decisions.combinations import (
    COMBINE,
    NAMED,
    SIX,
    Combination,
    Standardised,
    area,
    listed,
    singles,
    standardised,
    trial_areas,
    unlike,
)
from experiments.decisions.rules import left_for, unit_of
from experiments.decisions.rules import standardised as in_units
from experiments.decisions.scores import SCORES
from jaxatr import metrics

RESULTS = Path(__file__).parent / "results"
TPR = 0.95
WORST = 0.2
"""Weight of the largest regret, beside the mean one, when constants are chosen on other tasks."""

SUM = "sum within 3"
LEAST_GAIN = 2e-3
"""Least fall of the criterion for which a further member is added."""

SHOWN = (
    "softmax", "cbc", "mahalanobis", "knn", "spatial_stage2", "spatial_stage3", "template",
    "best in trials", "four, sum within 3", "five, sum within 3", "six, sum within 3",
    "six, power 2", "six, smallest", "six less image, sum within 3", "left out",
    "unlike, left out", "forward, left out", "default unless trials", "unlike, by trials",
    "six, by trials",
)  # fmt: skip
"""Rules of the record, in the order of the tables."""

Rule = Callable[[int, Sequence[int]], Combination]


class Table(NamedTuple):
    """AUROCs of combinations on all tasks.

    Attributes:
      tasks: the tasks.
      combinations: the single members, and systematic combinations.
      areas: ``[c, t]``, on the test.
      best: ``[t]``, of the best single score.
      trials: by combination and task, the AUROC in each trial.
    """

    tasks: list[Standardised]
    combinations: list[Combination]
    areas: np.ndarray
    best: np.ndarray
    trials: list[list[list[float]]]

    def regrets(self) -> np.ndarray:
        """``[c, t]``, how far each combination is below the best single score."""
        return self.best - self.areas


def table_of(tasks: list[Standardised]) -> Table:
    """Computes all combinations on all tasks, and the single members on all trials."""
    combinations = singles() + listed()
    areas = np.array(
        [
            [area(one.on(t.evidence, t.test), t.evidence.test.known) for t in tasks]
            for one in combinations
        ]
    )
    trials = [[trial_areas(t, one) for t in tasks] for one in singles()]
    best = np.array([max(t.evidence.singles.values()) for t in tasks])
    return Table(tasks, combinations, areas, best, trials)


def data_of(name: str) -> str:
    """Returns the data set of a task, from its name: ``frozen-small-mstar-60`` has ``mstar``."""
    kind = re.sub(r"^(frozen-)?(small-)?(thermal-(?=boxes))?", "", name)
    return re.sub(r"-(\d+|random|imagenet)(-\d+)?$", "", kind)


def cost(regrets: np.ndarray) -> Any:
    """Computes the criterion by which constants are chosen, over the last axis."""
    return regrets.mean(axis=-1) + WORST * regrets.max(axis=-1)


def rules_of(table: Table) -> dict[str, tuple[str, Rule]]:
    """Returns the rules by name, with their meanings.

    Each takes a task and the tasks of other data sets, on which its constants are chosen.
    """
    regrets = table.regrets()
    members = list(range(len(SCORES)))
    number = {one.names[0]: i for i, one in enumerate(table.combinations[: len(SCORES)])}

    def fixed(one: Combination) -> Rule:
        return lambda task, others: one

    def left_out(task: int, others: Sequence[int]) -> Combination:
        return table.combinations[int(np.argmin(cost(regrets[:, others])))]

    able = np.array([unlike(one.names) for one in table.combinations])

    def unlike_left_out(task: int, others: Sequence[int]) -> Combination:
        costs = np.where(able, cost(regrets[:, others]), np.inf)
        return table.combinations[int(np.argmin(costs))]

    added: dict[frozenset[str], np.ndarray] = {}

    def sum_of(names: Iterable[str]) -> np.ndarray:
        """Computes the regrets of a sum on all tasks, once."""
        key = frozenset(names)
        if key not in added:
            one = Combination(tuple(sorted(key)), SUM)
            added[key] = np.array([_regret(one, t, table) for t in range(len(table.tasks))])
        return added[key]

    def forward(task: int, others: Sequence[int]) -> Combination:
        chosen: list[str] = []
        least = np.inf
        while True:
            left = [name for name in SCORES if name not in chosen]
            costs = {name: cost(sum_of([*chosen, name])[list(others)]) for name in left}
            best = min(costs, key=lambda name: costs[name])
            if costs[best] >= least - LEAST_GAIN:
                return Combination(tuple(sorted(chosen)), SUM)
            chosen.append(best)
            least = costs[best]

    def by_trials(task: int, others: Sequence[int]) -> Combination:
        if not table.tasks[task].trials:
            return unlike_left_out(task, others)
        return table.combinations[max(members, key=lambda i: np.mean(table.trials[i][task]))]

    def unless(task: int, others: Sequence[int]) -> Combination:
        default = unlike_left_out(task, others)
        grid = itertools.product((0.0, 0.02, 0.05, 0.1), (0.0, 1.0, 2.0))
        own = [trial_areas(t, default) for t in table.tasks]

        def chosen(t: int, margin: float, spreads: float) -> Combination:
            better = [
                i
                for i in members
                if left_for(own[t], table.trials[i][t], margin=margin, spreads=spreads)
            ]
            best = max(better, key=lambda i: np.mean(table.trials[i][t]), default=None)
            return default if best is None else table.combinations[best]

        def on_others(constants: tuple[float, float]) -> float:
            found = [_regret(chosen(t, *constants), t, table) for t in others]
            return cost(np.array(found))

        return chosen(task, *min(grid, key=on_others))

    def weighted(names_of: Rule) -> Rule:
        """Weights members by the exponential of their AUROC in trials; sharpness from others."""

        def made(names: tuple[str, ...], t: int, sharpness: float) -> Combination:
            if not table.tasks[t].trials:
                return Combination(names, SUM)
            means = np.array([np.mean(table.trials[number[name]][t]) for name in names])
            raw = np.exp(sharpness * (means - means.max()))
            return Combination(names, SUM, tuple(float(w) for w in raw / raw.sum()))

        def rule(task: int, others: Sequence[int]) -> Combination:
            names = names_of(task, others).names

            def on_others(sharpness: float) -> float:
                found = [_regret(made(names, t, sharpness), t, table) for t in others]
                return cost(np.array(found))

            return made(names, task, min((0.0, 3.0, 6.0, 12.0, 25.0), key=on_others))

        return rule

    found: dict[str, tuple[str, Rule]] = {}
    for name in SCORES:
        found[name] = ("single score", fixed(Combination((name,))))
    for label, names in NAMED.items():
        for name in COMBINE:
            one = Combination(names, name)
            found[f"{label}, {name}"] = (str(one), fixed(one))
    return found | {
        "left out": ("the combination with the least regret on other data sets", left_out),
        "unlike, left out": (
            "the same among combinations of a map, features, the head and the image",
            unlike_left_out,
        ),
        "forward, left out": ("members added while the regret on other data sets falls", forward),
        "best in trials": ("the single score with the highest AUROC in trials", by_trials),
        "default unless trials": ("unlike, left for a single score better in trials", unless),
        "unlike, by trials": ("unlike, weighted by trials", weighted(unlike_left_out)),
        "six, by trials": ("six, weighted by trials", weighted(fixed(Combination(SIX, SUM)))),
    }


def _regret(one: Combination, task: int, table: Table) -> float:
    t = table.tasks[task]
    return float(table.best[task] - area(one.on(t.evidence, t.test), t.evidence.test.known))


def measured(one: Combination, task: int, table: Table) -> dict[str, Any]:
    """Measures a combination on a task."""
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
    areas = trial_areas(t, one)
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


NAMERS = ("head", "nndr_stage2", "nndr_stage3", "nndr_features", "template")
"""Ways to name the class: the head, or the nearest training chip by a map, features or image."""


def naming(t: Standardised) -> dict[str, Any]:
    """Measures what names the class right on known test chips, and two ways of choosing it.

    ``chosen`` is right most often on the calibration chips. ``head unless`` is the head, unless the
    chosen one is better there by two standard errors of the difference.
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
    return found | {"chosen": found[chosen], "head unless": found[chosen if clear else "head"]}


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
        per = {i: measured(one, i, table) for i, one in chosen.items()}
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
