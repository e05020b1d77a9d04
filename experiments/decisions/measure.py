"""Measures rules of decision on all recorded tasks, constants chosen without the measured task.

    python -m experiments.decisions.measure --workdir=FOLDER

Reads what ``experiments.decisions.run`` and ``experiments.decisions.frozen`` recorded, and writes
``results/decisions.json``, from which docs/results/decisions.md is made. Single scores are computed
once and kept in the folder.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.decisions import evidence, package, thresholds
from experiments.decisions.combinations import (
    CHEAP,
    COMBINE,
    FIVE,
    UNLIKE,
    Combination,
    Standardised,
    area,
    listed,
    standardised,
    trial_areas,
)
from experiments.decisions.rules import left_for
from jaxatr import metrics

RESULTS = Path(__file__).parent / "results"
TPR = 0.95
WORST = 0.2
"""Weight of the largest regret, beside the mean one, when constants are chosen on other tasks."""

Rule = Callable[[int, Sequence[int]], Combination]


class Table(NamedTuple):
    """AUROCs of all combinations on all tasks.

    Attributes:
      tasks: the tasks.
      combinations: the combinations.
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

    def on_others(self, others: Sequence[int]) -> np.ndarray:
        """``[c]``, the criterion by which a combination is chosen on other tasks."""
        regrets = self.regrets()[:, others]
        return regrets.mean(axis=1) + WORST * regrets.max(axis=1)


def table_of(tasks: list[Standardised]) -> Table:
    """Computes all combinations on all tasks and trials."""
    combinations = listed()
    areas = np.array(
        [
            [area(one.on(t.evidence, t.test), t.evidence.test.known) for t in tasks]
            for one in combinations
        ]
    )
    trials = [[trial_areas(t, one) for t in tasks] for one in combinations]
    best = np.array([max(t.evidence.singles.values()) for t in tasks])
    return Table(tasks, combinations, areas, best, trials)


def rules_of(table: Table) -> dict[str, tuple[str, Rule]]:
    """Returns the rules by name, with their meanings; each takes a task and the other tasks."""
    index = {one: i for i, one in enumerate(table.combinations)}

    def fixed(one: Combination) -> Rule:
        return lambda task, others: one

    def left_out(task: int, others: Sequence[int]) -> Combination:
        return table.combinations[int(np.argmin(table.on_others(others)))]

    def by_trials(task: int, others: Sequence[int], pool: Sequence[int]) -> Combination:
        areas = [table.trials[i][task] for i in pool]
        if not areas[0]:
            return left_out(task, others)
        return table.combinations[pool[int(np.argmax(np.mean(areas, axis=1)))]]

    singles = [i for i, one in enumerate(table.combinations) if len(one.names) == 1]

    def unless(task: int, others: Sequence[int]) -> Combination:
        """The default of the others, left if trials say so; margins are chosen on the others."""
        default = index[left_out(task, others)]
        pool = [*singles, *(index[Combination(FIVE, one)] for one in COMBINE)]
        grid = list(itertools.product((0.0, 0.01, 0.02, 0.03, 0.05, 0.1), (0.0, 1.0, 2.0)))

        def chosen(t: int, margin: float, spreads: float) -> int:
            own = table.trials[default][t]
            if not own:
                return default
            better = [
                i for i in pool if left_for(own, table.trials[i][t], margin=margin, spreads=spreads)
            ]
            return max(better, key=lambda i: np.mean(table.trials[i][t]), default=default)

        def cost(constants: tuple[float, float]) -> float:
            found = np.array([table.regrets()[chosen(t, *constants), t] for t in others])
            return float(found.mean() + WORST * found.max())

        return table.combinations[chosen(task, *min(grid, key=cost))]

    def weighted(task: int, others: Sequence[int]) -> Combination:
        """Members weighted by their trials; members, sharpness and cap are chosen on the others."""
        ways = ("sum within 2", "sum within 3", "sum within 5", "power 2")
        grid = list(itertools.product((UNLIKE, FIVE), (0.0, 3.0, 6.0, 12.0, 25.0), ways))

        def cost(constants: tuple[tuple[str, ...], float, str]) -> float:
            found = [weighted_regrets[constants][t] for t in others]
            return float(np.mean(found) + WORST * np.max(found))

        if not weighted_regrets:
            for constants in grid:
                weighted_regrets[constants] = [
                    _regret(_weighted(table, index, t, *constants), t, table)
                    for t in range(len(table.tasks))
                ]
        return _weighted(table, index, task, *min(grid, key=cost))

    weighted_regrets: dict[Any, list[float]] = {}
    found: dict[str, tuple[str, Rule]] = {}
    for i in singles:
        one = table.combinations[i]
        found[one.names[0]] = ("single score", fixed(one))
    for label, names in (("four", UNLIKE), ("five", FIVE), ("five less image", CHEAP)):
        for name in COMBINE:
            one = Combination(names, name)
            found[f"{label}, {name}"] = (str(one), fixed(one))
    found["left out"] = ("the combination with the least regret on the other tasks", left_out)
    found["best in trials"] = (
        "the single score with the highest mean AUROC in trials",
        lambda task, others: by_trials(task, others, singles),
    )
    found["default unless trials"] = (
        "the combination of the others, left for one that is better in trials by more than its "
        "spread",
        unless,
    )
    found["weighted by trials"] = ("map, features, head and image, weighted by trials", weighted)
    return found


def _weighted(
    table: Table,
    index: dict[Combination, int],
    task: int,
    names: tuple[str, ...],
    sharpness: float,
    combine: str,
) -> Combination:
    """Weights members by the exponential of their mean AUROC in a task's trials."""
    if not table.tasks[task].trials:
        return Combination(names, combine)
    means = np.array([np.mean(table.trials[index[Combination((one,))]][task]) for one in names])
    raw = np.exp(sharpness * (means - means.max()))
    return Combination(names, combine, tuple(float(w) for w in raw / raw.sum()))


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
    areas = trial_areas(t, one)
    if areas:
        found["estimate"] = float(np.mean(areas))
    return found


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
"""What can name the class: the head, or the nearest training chip by a map, features or image."""


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
    made: dict[str, Any] = {"tasks": [], "rules": {}}
    for i, t in enumerate(table.tasks):
        e = t.evidence
        best = max(e.singles, key=lambda name: e.singles[name])
        made["tasks"].append(
            {
                "name": e.name,
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
    for name, (meaning, rule) in rules_of(table).items():
        chosen = {i: rule(i, [o for o in range(count) if o != i]) for i in range(count)}
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
    Path(flags.out).write_text(json.dumps(_rounded(made), indent=1) + "\n")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return round(value, 4) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
